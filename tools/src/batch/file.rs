//! A batch file: a base scenario, and what to vary of it.

use servesim_scenarios::scenario::source::{Entries, Entry};
use servesim_scenarios::workload::InputError;
use toml::Value;

use super::limits::Limits;
use super::overrides::Override;

/// The keys of a batch file; those that end in a dot are tables.
const KNOWN: [&str; 10] =
    ["name", "description", "base", "zip", "seeds", "case", "set.", "sweep.", "limits.max_rss_mb", "limits.max_wall_s"];

/// The keys of a `[[case]]`.
const CASE_KEYS: [&str; 4] = ["name", "set", "max_rss_mb", "max_wall_s"];

/// A batch file.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchFile {
    /// Starts the names of its cases; the file's name unless it says another.
    pub name: String,
    /// What it shows.
    pub description: String,
    /// The scenarios that are varied: files beside the batch file, or names of those that come with the program.
    pub bases: Vec<String>,
    /// Set in every case.
    pub set: Vec<Override>,
    /// The values to go through, a key each, in the order of the file.
    pub axes: Vec<Vec<Override>>,
    /// Whether the axes are gone through side by side instead of crossed.
    pub zip: bool,
    /// The seeds to go through; none leaves the base's.
    pub seeds: Vec<Override>,
    /// Named variants; none is one without a name.
    pub variants: Vec<Variant>,
    /// Limits of each case.
    pub limits: Limits,
}

/// A named case: several settings that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// What it sets.
    pub set: Vec<Override>,
    /// Its own limits, which win over those of the file.
    pub limits: Limits,
}

/// Whether a file is a batch file, and no scenario.
pub fn is_batch(entries: &Entries) -> bool {
    let of_batch = |key: &String| key == "base" || key == "case" || key.starts_with("sweep.") || key == "sweep";
    entries.keys().any(of_batch)
}

impl BatchFile {
    /// Takes a batch file from its keys. `stem` is the file's name without its ending.
    ///
    /// # Errors
    /// An unknown key, a value of another type than its key has, no base, no values, or zipped axes of different lengths.
    pub fn read(entries: &Entries, file: &str, stem: &str) -> Result<BatchFile, InputError> {
        refuse_unknown(entries)?;
        let keys = Keys { entries, file };
        let axes = keys.axes()?;
        let zip = keys.flag("zip")?;
        if let Some(short) = axes.iter().find(|axis| zip && axis.len() != axes[0].len()) {
            let found = format!("{} values", short.len());
            let expected = format!("{} values, as of {}, because zip = true", axes[0].len(), axes[0][0].key);
            return Err(keys.error(&format!("sweep.{}", short[0].key), found, expected));
        }
        Ok(BatchFile {
            name: keys.text("name")?.unwrap_or_else(|| stem.to_owned()),
            description: keys.text("description")?.unwrap_or_default(),
            bases: keys.bases()?,
            set: keys.under("set."),
            axes,
            zip,
            seeds: keys.seeds()?,
            variants: keys.variants()?,
            limits: Limits {
                max_rss_mb: keys.limit("limits.max_rss_mb")?,
                max_wall_s: keys.limit("limits.max_wall_s")?,
            },
        })
    }
}

fn refuse_unknown(entries: &Entries) -> Result<(), InputError> {
    let is_known =
        |key: &str| KNOWN.iter().any(|known| *known == key || known.ends_with('.') && key.starts_with(known));
    let unknown = entries.iter().filter(|(key, _)| !is_known(key)).min_by_key(|(_, entry)| entry.line);
    let Some((key, entry)) = unknown else { return Ok(()) };
    let expected =
        "one of name, description, base, zip, seeds, [set], [sweep], [limits] with max_rss_mb and max_wall_s, [[case]]";
    Err(InputError {
        file: entry.file.clone(),
        line: entry.line,
        field: key.clone(),
        found: "an unknown key of a batch file".into(),
        expected: expected.into(),
    })
}

/// The keys of a batch file on their way to its typed form.
struct Keys<'e> {
    entries: &'e Entries,
    file: &'e str,
}

impl Keys<'_> {
    fn error(&self, key: &str, found: String, expected: impl Into<String>) -> InputError {
        let line = self.entries.get(key).map_or(0, |entry| entry.line);
        InputError { file: self.file.to_owned(), line, field: key.to_owned(), found, expected: expected.into() }
    }

    fn wrong(&self, key: &str, entry: &Entry, expected: &str) -> InputError {
        self.error(key, entry.value.to_string(), expected)
    }

    fn text(&self, key: &str) -> Result<Option<String>, InputError> {
        let Some(entry) = self.entries.get(key) else { return Ok(None) };
        entry.value.as_str().map(|text| Some(text.to_owned())).ok_or_else(|| self.wrong(key, entry, "a string"))
    }

    fn flag(&self, key: &str) -> Result<bool, InputError> {
        let Some(entry) = self.entries.get(key) else { return Ok(false) };
        entry.value.as_bool().ok_or_else(|| self.wrong(key, entry, "true or false"))
    }

    fn limit(&self, key: &str) -> Result<Option<f64>, InputError> {
        let Some(entry) = self.entries.get(key) else { return Ok(None) };
        as_limit(&entry.value).map(Some).ok_or_else(|| self.wrong(key, entry, "a number above 0"))
    }

    fn bases(&self) -> Result<Vec<String>, InputError> {
        let expected = "a scenario file, or a list of them";
        let Some(entry) = self.entries.get("base") else { return Err(self.error("base", "nothing".into(), expected)) };
        let names = match &entry.value {
            Value::String(name) => Some(vec![name.clone()]),
            Value::Array(names) => names.iter().map(|name| name.as_str().map(str::to_owned)).collect(),
            _ => None,
        };
        names.filter(|names| !names.is_empty()).ok_or_else(|| self.wrong("base", entry, expected))
    }

    /// What a table sets, in the order of the file.
    fn under(&self, table: &str) -> Vec<Override> {
        let mut found: Vec<Override> = Vec::new();
        for (key, entry) in self.entries {
            if let Some(key) = key.strip_prefix(table) {
                found.push(self.given(key, entry.value.clone(), entry.line));
            }
        }
        found.sort_by_key(|given| given.line);
        found
    }

    fn given(&self, key: &str, value: Value, line: u64) -> Override {
        Override { key: key.to_owned(), value, file: self.file.to_owned(), line }
    }

    fn axes(&self) -> Result<Vec<Vec<Override>>, InputError> {
        let spread = |axis: Override| match &axis.value {
            Value::Array(values) if !values.is_empty() => {
                Ok(values.iter().map(|value| self.given(&axis.key, value.clone(), axis.line)).collect())
            }
            value => Err(self.error(&format!("sweep.{}", axis.key), value.to_string(), "a list of at least one value")),
        };
        self.under("sweep.").into_iter().map(spread).collect()
    }

    fn seeds(&self) -> Result<Vec<Override>, InputError> {
        let Some(entry) = self.entries.get("seeds") else { return Ok(Vec::new()) };
        let seed = |value: &Value| value.as_integer().filter(|seed| *seed >= 0);
        let seeds =
            entry.value.as_array().filter(|seeds| !seeds.is_empty() && seeds.iter().all(|value| seed(value).is_some()));
        let seeds = seeds.ok_or_else(|| self.wrong("seeds", entry, "a list of whole numbers from 0"))?;
        Ok(seeds.iter().map(|value| self.given("seed", value.clone(), entry.line)).collect())
    }

    fn variants(&self) -> Result<Vec<Variant>, InputError> {
        let Some(entry) = self.entries.get("case") else { return Ok(Vec::new()) };
        let tables =
            entry.value.as_array().and_then(|cases| cases.iter().map(Value::as_table).collect::<Option<Vec<_>>>());
        let tables = tables.ok_or_else(|| self.wrong("case", entry, "tables that start with [[case]]"))?;
        let mut variants: Vec<Variant> = Vec::new();
        for table in tables {
            let variant = self.variant(table, entry.line)?;
            if variants.iter().any(|other| other.name == variant.name) {
                return Err(self.error("case", format!("{:?} twice", variant.name), "a name for each case"));
            }
            variants.push(variant);
        }
        Ok(variants)
    }

    fn variant(&self, table: &toml::Table, line: u64) -> Result<Variant, InputError> {
        if let Some(key) = table.keys().find(|key| !CASE_KEYS.contains(&key.as_str())) {
            return Err(self.error("case", format!("the key {key}"), format!("one of {}", CASE_KEYS.join(", "))));
        }
        let name = table.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| self.error("case", "a case without a name".into(), "name = \"...\""))?;
        let mut set = Vec::new();
        match table.get("set") {
            None => {}
            Some(Value::Table(inner)) => self.flatten("", inner, line, &mut set),
            Some(value) => return Err(self.error("case", format!("set = {value}"), "a table of keys and values")),
        }
        let limit = |key: &str| match table.get(key) {
            None => Ok(None),
            Some(value) => as_limit(value)
                .map(Some)
                .ok_or_else(|| self.error("case", format!("{key} = {value}"), "a number above 0")),
        };
        let limits = Limits { max_rss_mb: limit("max_rss_mb")?, max_wall_s: limit("max_wall_s")? };
        Ok(Variant { name: name.to_owned(), set, limits })
    }

    fn flatten(&self, prefix: &str, table: &toml::Table, line: u64, set: &mut Vec<Override>) {
        for (name, value) in table {
            let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            match value {
                Value::Table(inner) => self.flatten(&key, inner, line, set),
                value => set.push(self.given(&key, value.clone(), line)),
            }
        }
    }
}

fn as_limit(value: &Value) -> Option<f64> {
    let number = value.as_float().or_else(|| value.as_integer().map(|value| value as f64));
    number.filter(|number| number.is_finite() && *number > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use servesim_scenarios::scenario::source;

    fn read(text: &str) -> Result<BatchFile, InputError> {
        BatchFile::read(&source::read(text, "b.toml", &[]).expect("valid TOML"), "b.toml", "b")
    }

    #[test]
    fn axes_keep_the_order_of_the_file_however_keys_are_written() {
        let text = "base = \"a\"\n[sweep]\n\"workload.lanes\" = [1, 2]\nengine.page_size = [16]\n";
        let file = read(text).expect("valid");
        let keys: Vec<(&str, usize, u64)> =
            file.axes.iter().map(|axis| (axis[0].key.as_str(), axis.len(), axis[0].line)).collect();
        assert_eq!(keys, [("workload.lanes", 2, 3), ("engine.page_size", 1, 4)]);
        assert_eq!((file.name.as_str(), file.bases.as_slice()), ("b", &["a".to_owned()][..]));
    }

    #[test]
    fn errors_name_the_line_and_the_key() {
        let cases = [
            ("[sweep]\n\"engine.page_size\" = [1]\n", 0, "base"),
            ("base = 3\n", 1, "base"),
            ("base = []\n", 1, "base"),
            ("base = \"a\"\nseeds = [1, -2]\n", 2, "seeds"),
            ("base = \"a\"\nseeds = []\n", 2, "seeds"),
            ("base = \"a\"\nzip = 1\n", 2, "zip"),
            ("base = \"a\"\nsweeps = 1\n", 2, "sweeps"),
            ("base = \"a\"\n[sweep]\nx = 3\n", 3, "sweep.x"),
            ("base = \"a\"\n[sweep]\nx = []\n", 3, "sweep.x"),
            ("base = \"a\"\nzip = true\n[sweep]\nx = [1, 2]\ny = [1]\n", 5, "sweep.y"),
            ("base = \"a\"\n[limits]\nmax_wall_s = 0\n", 3, "limits.max_wall_s"),
            ("base = \"a\"\n[limits]\nmax_cpu_s = 1\n", 3, "limits.max_cpu_s"),
            ("base = \"a\"\ncase = 1\n", 2, "case"),
            ("base = \"a\"\n[[case]]\nset = {}\n", 2, "case"),
            ("base = \"a\"\n[[case]]\nname = \"x\"\nvalue = 1\n", 2, "case"),
            ("base = \"a\"\n[[case]]\nname = \"x\"\nset = 1\n", 2, "case"),
            ("base = \"a\"\n[[case]]\nname = \"x\"\nmax_rss_mb = \"1\"\n", 2, "case"),
            ("base = \"a\"\n[[case]]\nname = \"x\"\n[[case]]\nname = \"x\"\n", 2, "case"),
        ];
        for (text, line, field) in cases {
            let error = read(text).expect_err(text);
            assert_eq!((error.line, error.field.as_str()), (line, field), "{error}");
        }
    }
}
