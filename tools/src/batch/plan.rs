//! From the paths of a command line to the cases of a batch, in their order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use servesim_scenarios::scenario::source::{self, Entries};
use servesim_scenarios::scenario::{BATCHES, EMBEDDED};
use servesim_scenarios::workload::InputError;

use super::case::{Base, Case};
use super::file::{BatchFile, Variant, is_batch};
use super::identity::FileDigests;
use super::limits::Limits;
use super::overrides::Override;
use crate::arguments::BatchOptions;

/// The most cases of a batch.
const MOST_CASES: usize = 1_000_000;

/// The cases of a batch.
pub struct Plan {
    /// In the order of their results.
    pub cases: Vec<Case>,
    /// Keys that are swept, named or set by seeds, in the order in which they come up.
    pub varied: Vec<String>,
}

/// What is told on the command line for every case.
struct Told {
    set: Vec<Override>,
    limits: Limits,
    lenient: bool,
}

impl Plan {
    /// Expands every path.
    ///
    /// # Errors
    /// A path that is no scenario, batch file or folder of them, a batch file that is not valid, or no case at all. A
    /// scenario that is not valid is a case that fails.
    pub fn new(options: &BatchOptions) -> anyhow::Result<Plan> {
        let told = Told {
            set: told_overrides(&options.set)?,
            limits: Limits { max_rss_mb: options.max_rss_mb, max_wall_s: options.max_wall_s },
            lenient: options.lenient,
        };
        let mut plan = Plan { cases: Vec::new(), varied: Vec::new() };
        let mut digests = FileDigests::default();
        for path in &options.paths {
            for file in files_of(path)? {
                plan.add_file(&file, &told, &mut digests)?;
            }
        }
        if plan.cases.is_empty() {
            return Err(anyhow!("found no case, expected a scenario or a batch file"));
        }
        plan.tell_apart()?;
        Ok(plan)
    }

    fn add_file(&mut self, file: &Base, told: &Told, digests: &mut FileDigests) -> anyhow::Result<()> {
        let stem = Path::new(&file.file).file_stem().map_or("case".into(), |stem| stem.to_string_lossy());
        match source::read(&file.text, &file.file, &[]) {
            Ok(entries) if is_batch(&entries) => self.add_batch(&entries, file, &stem, told, digests),
            _ => {
                self.add_case(&stem, file, Vec::new(), told.limits, told, digests);
                Ok(())
            }
        }
    }

    fn add_batch(
        &mut self,
        entries: &Entries,
        file: &Base,
        stem: &str,
        told: &Told,
        digests: &mut FileDigests,
    ) -> anyhow::Result<()> {
        let batch = BatchFile::read(entries, &file.file, stem)?;
        let unnamed = [Variant { name: String::new(), set: Vec::new(), limits: Limits::default() }];
        let variants = if batch.variants.is_empty() { &unnamed[..] } else { &batch.variants };
        let points = points(&batch);
        let count = points.len().saturating_mul(variants.len()).saturating_mul(batch.bases.len());
        if self.cases.len().saturating_add(count) > MOST_CASES {
            return Err(anyhow!("{}: found more than {MOST_CASES} cases, expected fewer", file.file));
        }
        for name in &batch.bases {
            let base = find_base(name, file)?;
            for variant in variants {
                for point in &points {
                    let mut parts = vec![batch.name.clone()];
                    if batch.bases.len() > 1 {
                        let stem =
                            Path::new(name).file_stem().map_or(name.as_str().into(), |stem| stem.to_string_lossy());
                        parts.push(stem.into_owned());
                    }
                    parts.extend(Some(variant.name.clone()).filter(|name| !name.is_empty()));
                    parts.extend(
                        point.iter().map(|given| format!("{}={}", short_key(&given.key, &batch), given.shown())),
                    );
                    let set: Vec<Override> = [&batch.set[..], &variant.set, point].concat();
                    let limits = told.limits.or(variant.limits).or(batch.limits);
                    self.note_varied(variant.set.iter().chain(point));
                    self.add_case(&parts.join("+"), &base, set, limits, told, digests);
                }
            }
        }
        Ok(())
    }

    fn note_varied<'o>(&mut self, overrides: impl Iterator<Item = &'o Override>) {
        for given in overrides {
            if !self.varied.contains(&given.key) {
                self.varied.push(given.key.clone());
            }
        }
    }

    fn add_case(
        &mut self,
        name: &str,
        base: &Base,
        mut set: Vec<Override>,
        limits: Limits,
        told: &Told,
        digests: &mut FileDigests,
    ) {
        set.extend(told.set.iter().cloned());
        let case = Case::new(name, base, &set, limits, digests);
        if !told.lenient || case.setting("workload.lenient").is_none() {
            self.cases.push(case);
            return;
        }
        let value = toml::Value::Boolean(true);
        set.push(Override { key: "workload.lenient".into(), value, file: "--lenient".into(), line: 0 });
        self.cases.push(Case::new(name, base, &set, limits, digests));
    }

    /// Gives cases of one name a part of their digest.
    ///
    /// # Errors
    /// Cases that are the same in everything.
    fn tell_apart(&mut self) -> anyhow::Result<()> {
        let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, case) in self.cases.iter().enumerate() {
            places.entry(case.name.to_lowercase()).or_default().push(index);
        }
        for indices in places.into_values().filter(|indices| indices.len() > 1) {
            for (at, &index) in indices.iter().enumerate() {
                let case = &self.cases[index];
                if indices[..at].iter().any(|&other| self.cases[other].digest.starts_with(&case.digest[..8])) {
                    return Err(anyhow!("case {}: found twice with the same settings, expected once", case.name));
                }
            }
            for index in indices {
                let case = &mut self.cases[index];
                case.name = format!("{}+{}", case.name, &case.digest[..8]);
            }
        }
        Ok(())
    }
}

fn told_overrides(set: &[String]) -> Result<Vec<Override>, InputError> {
    let entries = source::read("", "--set", set)?;
    let mut overrides: Vec<Override> = entries
        .into_iter()
        .map(|(key, entry)| Override { key, value: entry.value, file: "--set".into(), line: entry.line })
        .collect();
    overrides.sort_by_key(|given| given.line);
    Ok(overrides)
}

/// Every combination of the axes and the seeds; the last one changes fastest.
fn points(batch: &BatchFile) -> Vec<Vec<Override>> {
    let mut points: Vec<Vec<Override>> = vec![Vec::new()];
    if batch.zip && !batch.axes.is_empty() {
        points = (0..batch.axes[0].len()).map(|at| batch.axes.iter().map(|axis| axis[at].clone()).collect()).collect();
    }
    let axes = if batch.zip { &[][..] } else { &batch.axes[..] };
    for axis in axes.iter().chain(Some(&batch.seeds).filter(|seeds| !seeds.is_empty())) {
        if points.len().saturating_mul(axis.len()) > MOST_CASES {
            // The caller refuses so many; no need to make them all.
            return vec![Vec::new(); MOST_CASES + 1];
        }
        let grown = points.iter().flat_map(|point| {
            axis.iter().map(|value| point.iter().chain(Some(value)).cloned().collect::<Vec<Override>>())
        });
        points = grown.collect();
    }
    points
}

/// The last part of a key, or the whole one where two axes end alike.
fn short_key<'k>(key: &'k str, batch: &BatchFile) -> &'k str {
    let short = |key: &'k str| key.rsplit('.').next().unwrap_or(key);
    let alike = batch.axes.iter().filter(|axis| axis[0].key.rsplit('.').next() == Some(short(key))).count();
    if alike > 1 { key } else { short(key) }
}

/// The files that a path stands for: itself, the `.toml` files of a folder by name, or one that comes with the program.
fn files_of(path: &Path) -> anyhow::Result<Vec<Base>> {
    if path.is_dir() {
        let cannot = || format!("{}: cannot be read", path.display());
        let entries: Vec<PathBuf> = std::fs::read_dir(path)
            .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
            .with_context(cannot)?;
        let mut files: Vec<PathBuf> =
            entries.into_iter().filter(|file| file.extension().is_some_and(|extension| extension == "toml")).collect();
        files.sort();
        if files.is_empty() {
            return Err(anyhow!("{}: found no .toml file, expected scenarios or batch files", path.display()));
        }
        return files.iter().map(|file| read_file(file)).collect();
    }
    if path.exists() {
        return Ok(vec![read_file(path)?]);
    }
    let name = path.display().to_string();
    embedded(&name).map(|base| vec![base]).ok_or_else(|| {
        anyhow!(
            "{name}: found no such file, expected a scenario, a batch file, a folder of them, or a name that \
                 `servesim scenarios list` shows"
        )
    })
}

fn read_file(path: &Path) -> anyhow::Result<Base> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("{file}: cannot be read"))?;
    Ok(Base { file, text })
}

/// A scenario or batch file that comes with the program.
fn embedded(name: &str) -> Option<Base> {
    let all = EMBEDDED.iter().chain(BATCHES);
    let mut found = all.filter(|(file, _)| *file == name || file.strip_suffix(".toml") == Some(name));
    found.next().map(|(file, text)| Base { file: (*file).to_owned(), text: (*text).to_owned() })
}

/// The base of a batch file: beside it, or one that comes with the program.
fn find_base(name: &str, batch: &Base) -> anyhow::Result<Base> {
    let folder = Path::new(&batch.file).parent().unwrap_or(Path::new(""));
    let beside = folder.join(name);
    let candidates = [beside.clone(), folder.join(format!("{name}.toml"))];
    if let Some(file) = candidates.iter().find(|file| file.is_file()) {
        return read_file(file);
    }
    embedded(name).ok_or_else(|| {
        let expected = "a scenario file beside the batch file, or a name that `servesim scenarios list` shows";
        anyhow!("{}: base: found no {}, expected {expected}", batch.file, beside.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(text: &str) -> BatchFile {
        BatchFile::read(&source::read(text, "b.toml", &[]).expect("valid TOML"), "b.toml", "b").expect("valid")
    }

    fn shown(text: &str) -> Vec<String> {
        let one = |point: &Vec<Override>| point.iter().map(Override::argument).collect::<Vec<_>>().join(" ");
        points(&batch(text)).iter().map(one).collect()
    }

    #[test]
    fn axes_are_crossed_the_last_one_fastest_and_seeds_last() {
        let text = "base = \"a\"\nseeds = [7, 8]\n[sweep]\nb = [1, 2]\na = [\"x\"]\n";
        assert_eq!(
            shown(text),
            ["b=1 a=\"x\" seed=7", "b=1 a=\"x\" seed=8", "b=2 a=\"x\" seed=7", "b=2 a=\"x\" seed=8"]
        );
    }

    #[test]
    fn zipped_axes_go_side_by_side() {
        assert_eq!(shown("base = \"a\"\nzip = true\n[sweep]\nb = [1, 2]\na = [3, 4]\n"), ["b=1 a=3", "b=2 a=4"]);
        assert_eq!(shown("base = \"a\"\nzip = true\nseeds = [5]\n"), ["seed=5"]);
        assert_eq!(shown("base = \"a\"\n"), [""]);
    }

    #[test]
    fn too_many_cases_are_not_made() {
        let list = (0..200).map(|value| value.to_string()).collect::<Vec<_>>().join(", ");
        let axes: String = ["a", "b", "c", "d"].map(|key| format!("{key} = [{list}]\n")).concat();
        assert_eq!(points(&batch(&format!("base = \"a\"\n[sweep]\n{axes}"))).len(), MOST_CASES + 1);
    }
}
