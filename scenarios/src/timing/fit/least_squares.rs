//! Least squares, by `nalgebra`: with coefficients that may not be negative, and with a weak pull towards a first guess.

use nalgebra::{Cholesky, DMatrix, DVector};

/// A gain below this share of the largest is none.
const TOLERANCE: f64 = 1e-10;

/// Why there is no solution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SolveError {
    /// The numbers are not finite, or too large to square.
    #[error("the sums of squares are not finite")]
    NotFinite,
}

/// The coefficients, none negative, whose combination of the columns is nearest to `target` in the sum of squares: Lawson and
/// Hanson's method of active sets. A column of zeros gets 0. Columns that depend on each other share their part.
///
/// # Errors
/// Numbers that are not finite.
pub fn non_negative(columns: &DMatrix<f64>, target: &DVector<f64>) -> Result<DVector<f64>, SolveError> {
    let scales = columns.column_iter().map(|column| column.amax()).map(|most| if most > 0.0 { most } else { 1.0 });
    let scales: Vec<f64> = scales.collect();
    let mut scaled = columns.clone();
    for (mut column, scale) in scaled.column_iter_mut().zip(&scales) {
        column /= *scale;
    }
    // The triangle of the factorization stands for all rows from here on.
    let factors = scaled.qr();
    let small_target = factors.q().transpose() * target;
    let mut solution = solve(&factors.r(), &small_target)?;
    for (coefficient, scale) in solution.iter_mut().zip(&scales) {
        *coefficient /= scale;
    }
    Ok(solution)
}

fn solve(columns: &DMatrix<f64>, target: &DVector<f64>) -> Result<DVector<f64>, SolveError> {
    let count = columns.ncols();
    let mut solution = DVector::zeros(count);
    let mut free: Vec<usize> = Vec::new();
    let limit = TOLERANCE * (columns.transpose() * target).amax();
    if !limit.is_finite() {
        return Err(SolveError::NotFinite);
    }
    // Each round frees one column; a column that was bound again can be freed later, so there may be more rounds than columns.
    for _ in 0..8 * count {
        let gains = columns.transpose() * (target - columns * &solution);
        let best = (0..count).filter(|column| !free.contains(column)).max_by(|a, b| gains[*a].total_cmp(&gains[*b]));
        let Some(best) = best.filter(|best| gains[*best] > limit) else { break };
        free.push(best);
        free.sort_unstable();
        bind_negative(columns, target, &mut free, &mut solution)?;
    }
    Ok(solution)
}

/// Solves for the free columns; while one would be negative, goes towards that solution until the first becomes 0, and binds it.
fn bind_negative(
    columns: &DMatrix<f64>,
    target: &DVector<f64>,
    free: &mut Vec<usize>,
    solution: &mut DVector<f64>,
) -> Result<(), SolveError> {
    while !free.is_empty() {
        let wanted = columns.select_columns(free.iter()).svd(true, true).solve(target, TOLERANCE);
        let wanted = wanted.map_err(|_| SolveError::NotFinite)?;
        if wanted.iter().any(|value| !value.is_finite()) {
            return Err(SolveError::NotFinite);
        }
        let mut way = 1.0_f64;
        for (&column, &value) in free.iter().zip(wanted.iter()) {
            if value <= 0.0 {
                way = way.min(solution[column] / (solution[column] - value).max(f64::MIN_POSITIVE));
            }
        }
        for (&column, &value) in free.iter().zip(wanted.iter()) {
            solution[column] += way * (value - solution[column]);
        }
        if way >= 1.0 {
            return Ok(());
        }
        let before = free.len();
        let smallest = free.iter().copied().min_by(|a, b| solution[*a].total_cmp(&solution[*b]));
        free.retain(|&column| {
            solution[column] > 0.0 && Some(column) != smallest.filter(|column| solution[*column] <= 1e-300)
        });
        if free.len() == before {
            free.retain(|&column| Some(column) != smallest);
        }
        (0..solution.len()).filter(|column| !free.contains(column)).for_each(|column| solution[column] = 0.0);
    }
    Ok(())
}

/// Normal equations with a weak pull: `sums` is the sum over measurements of the outer product of their weights, `target` the
/// sum of weights times measurement. `guess` counts as `pull` of a measurement for each unknown.
///
/// # Errors
/// Numbers that are not finite.
pub fn pulled(
    mut sums: DMatrix<f64>,
    mut target: DVector<f64>,
    guess: &DVector<f64>,
    pull: f64,
) -> Result<DVector<f64>, SolveError> {
    for unknown in 0..guess.len() {
        sums[(unknown, unknown)] += pull;
        target[unknown] += pull * guess[unknown];
    }
    let solution = Cholesky::new(sums).ok_or(SolveError::NotFinite)?.solve(&target);
    if solution.iter().all(|value| value.is_finite()) { Ok(solution) } else { Err(SolveError::NotFinite) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_solution_inside_is_the_ordinary_one() {
        let columns = DMatrix::from_row_slice(4, 2, &[1.0, 1e6, 1.0, 2e6, 1.0, 3e6, 1.0, 5e6]);
        let target = &columns * DVector::from_vec(vec![7.0, 3e-6]);
        let solution = non_negative(&columns, &target).expect("finite");
        assert!((solution[0] - 7.0).abs() < 1e-9 && (solution[1] - 3e-6).abs() < 1e-15, "{solution}");
    }

    #[test]
    fn a_coefficient_that_would_be_negative_is_zero_and_the_others_are_best_without_it() {
        // 10 - x: without a slope the best constant is the mean.
        let columns = DMatrix::from_row_slice(3, 2, &[1.0, 0.0, 1.0, 1.0, 1.0, 2.0]);
        let target = DVector::from_vec(vec![10.0, 9.0, 8.0]);
        let solution = non_negative(&columns, &target).expect("finite");
        assert!((solution[0] - 9.0).abs() < 1e-12 && solution[1] == 0.0, "{solution}");
        assert_eq!(non_negative(&columns, &-target).expect("finite"), DVector::zeros(2));
    }

    #[test]
    fn the_optimum_holds_on_random_problems() {
        let mut state = 1_u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / (1_u64 << 31) as f64 - 0.4
        };
        for _ in 0..200 {
            let columns = DMatrix::from_fn(12, 5, |_, _| draw());
            let target = DVector::from_fn(12, |_, _| draw());
            let solution = non_negative(&columns, &target).expect("finite");
            let gains = columns.transpose() * (&target - &columns * &solution);
            for (value, gain) in solution.iter().zip(gains.iter()) {
                // Karush, Kuhn and Tucker: no gain is left at a positive coefficient, none upwards at a bound one.
                assert!(*value >= 0.0 && *gain < 1e-8 && (*value == 0.0 || gain.abs() < 1e-8), "{solution} {gains}");
            }
        }
    }

    #[test]
    fn what_depends_or_is_not_finite_is_no_panic() {
        let same = DMatrix::from_row_slice(3, 3, &[1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0]);
        let solution = non_negative(&same, &DVector::from_vec(vec![4.0, 4.0, 4.0])).expect("finite");
        assert!((solution[0] + solution[1] - 4.0).abs() < 1e-9 && solution[2] == 0.0, "{solution}");
        let huge = DMatrix::from_element(2, 1, 1.0);
        assert_eq!(non_negative(&huge, &DVector::from_element(2, f64::INFINITY)), Err(SolveError::NotFinite));
        let pulled_up = pulled(DMatrix::zeros(1, 1), DVector::zeros(1), &DVector::from_element(1, 5.0), 1e-6);
        assert!((pulled_up.expect("finite")[0] - 5.0).abs() < 1e-9);
    }
}
