//! Known coefficients come back, from exact and from noisy passes; a fitted table reads as a scenario's table.

use super::*;
use crate::generate::sample::Sampler;
use crate::timing::measured;
use crate::timing::table::Outside;

const COSTS: [f64; 8] = [9_000.0, 45.0, 0.75, 120.0, 0.002, 6_500.0, 22.0, 0.04];

/// Passes that a linear model would take, each with an error of up to `noise`.
fn passes(count: u32, noise: f64) -> Vec<MeasuredPass> {
    let model = Linear::new(COSTS);
    let mut sampler = Sampler::new(3, 0);
    let mut draw = |low: u32, high: u32| f64::from(sampler.uniform(Span { low, high }));
    let mut passes = Vec::new();
    for index in 0..count {
        let mode = if index % 2 == 0 { Mode::Extend } else { Mode::Decode };
        let rows = draw(1, 32);
        let extend = mode == Mode::Extend;
        let (new_tokens, cached_tokens) = if extend { (draw(1, 8192), draw(0, 50_000)) } else { (0.0, 0.0) };
        let kv_tokens = if extend { 0.0 } else { rows * draw(10, 9_000) };
        let attention = extend.then(|| (new_tokens * (cached_tokens + new_tokens) / rows).round());
        let mut pass =
            MeasuredPass { mode, rows, new_tokens, cached_tokens, kv_tokens, attention, duration_ms: 0.0, line: 0 };
        let error = 1.0 + noise * (draw(0, 2_000) / 1_000.0 - 1.0);
        pass.duration_ms = model.pass_us(&pass.shape()) / 1e3 * error;
        passes.push(pass);
    }
    passes
}

fn options(kind: FitKind) -> FitOptions {
    FitOptions { kind, holdout: 0.25, seed: 7 }
}

#[test]
fn a_linear_fit_recovers_the_costs() {
    let fit = fit(&passes(200, 0.0), options(FitKind::Linear)).expect("fitted");
    let Fitted::Linear(linear) = &fit.fitted else { panic!("not linear") };
    for (found, expected) in linear.costs().iter().zip(COSTS) {
        assert!((found / expected - 1.0).abs() < 1e-6, "{:?}", linear.costs());
    }
    assert_eq!((fit.extend.fitted_passes, fit.extend.held_out_passes), (75, 25));
    assert!(fit.decode.held_out_percent.is_some_and(|percent| percent < 1e-6));
}

#[test]
fn noise_shows_in_the_error_and_the_fit_is_the_same_again() {
    let passes = passes(1_000, 0.1);
    let first = fit(&passes, options(FitKind::Linear)).expect("fitted");
    // The mean size of an even error of up to 10 % is 5 %.
    let percent = first.decode.held_out_percent.expect("held out");
    assert!((3.5..6.5).contains(&percent), "{percent}");
    assert_eq!(fit(&passes, options(FitKind::Linear)).expect("fitted"), first);
    let other = FitOptions { seed: 8, ..options(FitKind::Linear) };
    assert_ne!(fit(&passes, other).expect("fitted").fitted, first.fitted);
}

#[test]
fn a_fitted_table_interpolates_and_is_read_again() {
    let without_attention = |pass: &MeasuredPass| MeasuredPass { attention: None, ..*pass };
    let passes: Vec<MeasuredPass> = passes(2_000, 0.0).iter().map(without_attention).collect();
    let fit = fit(&passes, options(FitKind::Table)).expect("fitted");
    // Decode is linear, and so is every interpolation of it. Extend bends with attention, which a table of sums only averages.
    assert!(fit.decode.held_out_percent.is_some_and(|percent| percent < 0.1), "{:?}", fit.decode);
    assert!(fit.extend.held_out_percent.is_some_and(|percent| percent < 25.0), "{:?}", fit.extend);
    let Fitted::Table(table) = &fit.fitted else { panic!("no table") };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.csv");
    std::fs::write(&path, table::render(table)).expect("written");
    assert_eq!(&Table::read(&path, Outside::Clamp).expect("read"), table);
    assert!(fit.render("p.csv", "t.csv").contains("path = \"t.csv\""));
}

#[test]
fn measured_grids_come_back_as_they_are() {
    let mut text = "mode,rows,kv_tokens,duration_ms\n".to_owned();
    for (rows, kv_tokens, duration) in [(1, 10, 3.0), (1, 99, 8.0), (5, 10, 4.0), (5, 99, 7.0)] {
        text += &format!("decode,{rows},{kv_tokens},{duration}\n");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("p.csv");
    std::fs::write(&path, text).expect("written");
    let passes = measured::read(&path).expect("good");
    let fit = fit(&passes, FitOptions { holdout: 0.0, ..options(FitKind::Table) }).expect("fitted");
    assert!(fit.decode.fitted_percent.is_some_and(|percent| percent < 1e-3), "{:?}", fit.decode);
    assert_eq!((fit.decode.held_out_percent, fit.extend.fitted_passes), (None, 0));
}

#[test]
fn nothing_to_fit_is_an_error() {
    assert_eq!(fit(&[], options(FitKind::Linear)), Err(FitError::NoPass));
    let all = FitOptions { holdout: 1.0, ..options(FitKind::Linear) };
    assert_eq!(fit(&passes(4, 0.0), all), Err(FitError::Holdout(1.0)));
    // Fewer passes than costs: something fits them.
    assert!(fit(&passes(2, 0.0), options(FitKind::Linear)).is_ok());
}
