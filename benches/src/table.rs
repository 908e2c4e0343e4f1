//! Rows of figures, and the table and JSON that they make.

use serde::Serialize;

/// Whether a figure must not be above or not below its target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Value or ratio at most this.
    AtMost(f64),
    /// Value or ratio at least this.
    AtLeast(f64),
    /// Shown for what it is.
    None,
}

/// Which of a row's two figures the target is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// The value itself.
    Value,
    /// The value over the baseline.
    Ratio,
}

/// One figure against its baseline of the same run.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name that stays the same between versions.
    pub id: String,
    /// Unit of value and baseline.
    pub unit: &'static str,
    /// Median over the repetitions.
    pub value: f64,
    /// Median of the baseline; null where the figure has none.
    pub baseline: Option<f64>,
    /// Median of the repetitions' own ratios.
    pub ratio: Option<f64>,
    /// What it is to be, in words.
    pub target: String,
    /// Half of the middle half of the judged figure's repetitions, over their median: 0.05 is plus or minus 5 %.
    pub spread: f64,
    /// Repetitions.
    pub repetitions: usize,
    /// Whether the target is met; null where there is none.
    pub ok: Option<bool>,
    /// What the baseline is.
    pub note: String,
}

/// Repetitions of one figure and of its baseline, taken in turn.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    /// Value and baseline of each repetition.
    pub pairs: Vec<(f64, f64)>,
}

impl Pairs {
    /// Measures baseline and value in turn, the order changing each time.
    ///
    /// # Errors
    /// The first measurement that failed.
    pub fn measure(
        repetitions: usize,
        mut value: impl FnMut() -> Result<f64, String>,
        mut baseline: impl FnMut() -> Result<f64, String>,
    ) -> Result<Self, String> {
        let mut pairs = Vec::with_capacity(repetitions);
        for repetition in 0..repetitions {
            if repetition % 2 == 0 {
                let below = baseline()?;
                pairs.push((value()?, below));
            } else {
                let above = value()?;
                pairs.push((above, baseline()?));
            }
        }
        Ok(Pairs { pairs })
    }

    /// The same with every value replaced.
    pub fn map(&self, change: impl Fn(f64, f64) -> f64) -> Self {
        Pairs { pairs: self.pairs.iter().map(|&(value, baseline)| (change(value, baseline), baseline)).collect() }
    }

    /// The row of these repetitions.
    pub fn row(&self, id: &str, unit: &'static str, judged: Judged, target: Target, note: &str) -> Row {
        let values: Vec<f64> = self.pairs.iter().map(|pair| pair.0).collect();
        let baselines: Vec<f64> = self.pairs.iter().map(|pair| pair.1).collect();
        let ratios: Vec<f64> = self.pairs.iter().map(|pair| pair.0 / pair.1).collect();
        let (value, ratio) = (median(&values), median(&ratios));
        let (figure, spread, of) = match judged {
            Judged::Value => (value, spread(&values), unit),
            Judged::Ratio => (ratio, spread(&ratios), "x"),
        };
        Row {
            id: id.to_owned(),
            unit,
            value,
            baseline: Some(median(&baselines)),
            ratio: Some(ratio),
            target: describe(target, of),
            spread,
            repetitions: self.pairs.len(),
            ok: is_met(target, figure),
            note: note.to_owned(),
        }
    }
}

/// A row of a figure that has no baseline.
pub fn alone(id: &str, unit: &'static str, values: &[f64], target: Target, note: &str) -> Row {
    let value = median(values);
    Row {
        id: id.to_owned(),
        unit,
        value,
        baseline: None,
        ratio: None,
        target: describe(target, unit),
        spread: spread(values),
        repetitions: values.len(),
        ok: is_met(target, value),
        note: note.to_owned(),
    }
}

fn describe(target: Target, unit: &str) -> String {
    match target {
        Target::AtMost(limit) => format!("<= {limit} {unit}"),
        Target::AtLeast(limit) => format!(">= {limit} {unit}"),
        Target::None => String::new(),
    }
}

fn is_met(target: Target, figure: f64) -> Option<bool> {
    match target {
        Target::AtMost(limit) => Some(figure <= limit),
        Target::AtLeast(limit) => Some(figure >= limit),
        Target::None => None,
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The value at `share` of the way through the sorted values, between two of them in proportion.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = share * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * at.fract()
}

/// The middle value.
pub fn median(values: &[f64]) -> f64 {
    quantile(&sorted(values), 0.5)
}

fn spread(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    (quantile(&sorted, 0.75) - quantile(&sorted, 0.25)) / 2.0 / quantile(&sorted, 0.5).abs()
}

/// The rows as a table for people.
pub fn text(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<44} {:>12} {:>12} {:>8} {:>7}  {:<16} {}\n",
        "row", "value", "baseline", "ratio", "spread", "target", "unit"
    );
    for row in rows {
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), figure);
        let verdict = match row.ok {
            Some(true) => "",
            Some(false) => "  MISSED",
            None => "",
        };
        text.push_str(&format!(
            "{:<44} {:>12} {:>12} {:>8} {:>6.1}%  {:<16} {}{verdict}\n",
            row.id,
            figure(row.value),
            number(row.baseline),
            row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}")),
            row.spread * 100.0,
            row.target,
            row.unit,
        ));
    }
    text
}

fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_judges_the_median_of_each_repetitions_own_ratio() {
        let pairs = Pairs { pairs: vec![(11.0, 10.0), (24.0, 20.0), (39.0, 30.0)] };
        let row = pairs.row("row", "ms", Judged::Ratio, Target::AtMost(1.1), "");
        assert_eq!((row.value, row.baseline, row.ok), (24.0, Some(20.0), Some(false)));
        assert!((row.ratio.unwrap_or_default() - 1.2).abs() < 1e-9);
        assert_eq!(row.target, "<= 1.1 x");
        let row = pairs.row("row", "ms", Judged::Value, Target::AtLeast(24.0), "");
        assert_eq!((row.ok, row.target.as_str()), (Some(true), ">= 24 ms"));
    }

    #[test]
    fn spread_is_half_of_the_middle_half() {
        assert!((spread(&[90.0, 95.0, 100.0, 105.0, 110.0]) - 0.05).abs() < 1e-9);
        assert_eq!(median(&[3.0, 1.0]), 2.0);
    }

    #[test]
    fn repetitions_alternate() {
        let order = std::cell::RefCell::new(String::new());
        let push = |name: char| {
            order.borrow_mut().push(name);
            Ok(1.0)
        };
        Pairs::measure(3, || push('v'), || push('b')).unwrap();
        assert_eq!(order.into_inner(), "bvvbbv");
    }
}
