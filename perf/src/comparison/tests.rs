//! Verdicts on samples made for them.

use super::*;
use crate::report::ApiReport;

fn report(repetitions: &[u64]) -> RunReport {
    RunReport { schema_version: 1, repetitions: repetitions.to_vec(), ..Default::default() }
}

fn compared(first: &RunReport, second: &RunReport) -> Comparison {
    Comparison::of_reports((Path::new("a"), first), (Path::new("b"), second)).unwrap()
}

fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

#[test]
fn a_clear_slowdown_is_slower() {
    let first = report(&[1000, 1010, 990, 1005, 995, 1002]);
    let second = report(&[1100, 1110, 1090, 1105, 1095, 1102]);
    let found = compared(&first, &second);
    assert_eq!(found.verdict, Verdict::Slower);
    assert!((found.change - 0.099_900).abs() < 1e-4, "{}", found.change);
    let interval = found.change_interval.unwrap();
    assert!(interval.low > 0.08 && interval.high < 0.12, "{interval:?}");
    assert!(found.exceeds(limit("3%")) && !found.exceeds(limit("20%")));
    let back = compared(&second, &first);
    assert_eq!(back.verdict, Verdict::Faster);
    assert!(!back.exceeds(limit("0%")));
}

#[test]
fn noise_is_no_difference() {
    let first = report(&[1000, 1200, 900, 1100, 1050, 950]);
    let second = report(&[1210, 890, 1110, 1060, 960, 1150]);
    let found = compared(&first, &second);
    assert_eq!(found.verdict, Verdict::NoDifference);
    assert!(found.change > 0.03 && !found.exceeds(limit("3%")), "{}", found.change);
}

#[test]
fn a_real_change_below_the_limit_passes() {
    let found = compared(&report(&[1000, 1001, 999, 1002, 998]), &report(&[1010, 1011, 1009, 1012, 1008]));
    assert_eq!(found.verdict, Verdict::Slower);
    assert!(!found.exceeds(limit("3%")) && found.exceeds(limit("0.5 %")));
}

#[test]
fn few_repetitions_are_said_to_be_few_and_still_gate() {
    let found = compared(&report(&[1000, 1001, 999]), &report(&[1500, 1501, 1499]));
    assert_eq!(found.verdict, Verdict::TooFewRepetitions);
    assert!(found.exceeds(limit("3%")));
    assert!(!compared(&report(&[1000]), &report(&[1001])).exceeds(limit("3%")));
    let four = compared(&report(&[1000, 1001, 999, 1002]), &report(&[1500, 1501, 1499, 1502]));
    assert_eq!(four.verdict, Verdict::Slower);
}

#[test]
fn what_is_not_alike_is_named() {
    let mut second = report(&[1000]);
    second.archive = "other".into();
    second.threads = 4;
    second.d2h.failed = 2;
    let found = compared(&report(&[1000]), &second);
    let warnings = found.warnings.join("\n");
    assert!(
        warnings.contains("archives differ") && warnings.contains("thread counts differ: \"0\" and \"4\""),
        "{warnings}"
    );
    assert!(warnings.contains("candidate did not pass (exit code 0, 2 results differ"), "{warnings}");
    assert!(found.exceeds(limit("50%")), "a replay that did not pass is never good enough");
}

#[test]
fn api_totals_are_per_repetition() {
    let api = |name: &str, count, total_ns| ApiReport { name: name.into(), count, total_ns, ..Default::default() };
    let mut first = report(&[10, 10]);
    first.apis = vec![api("hipMalloc", 4, 4000), api("hipFree", 2, 100)];
    let mut second = report(&[10]);
    second.apis = vec![api("hipMalloc", 2, 7000), api("hipMemcpy", 1, 50)];
    let found = compared(&first, &second);
    let names: Vec<_> = found.lines.iter().map(|line| line.name.as_str()).collect();
    // +5000, then +50 and -50 by name.
    assert_eq!(names, ["hipMalloc", "hipFree", "hipMemcpy"]);
    let line = &found.lines[0];
    assert_eq!((line.count, line.change.baseline.median, line.change.candidate.median), ([2.0, 2.0], 2000.0, 7000.0));
    let text = found.to_string();
    assert!(text.contains("+5.00 us") && text.contains("-50 ns"), "{text}");
}

#[test]
fn limits_are_percentages() {
    assert_eq!(limit("3%").fraction(), 0.03);
    for bad in ["3", "", "%", "-1%", "nan%", "inf%", "three%"] {
        assert!(bad.parse::<Limit>().is_err(), "{bad}");
    }
}

#[test]
fn reports_without_times_are_refused() {
    assert!(matches!(side("A", Path::new("a"), &report(&[])), Err(ReportError::NoRepetitions { .. })));
    assert!(matches!(side("A", Path::new("a"), &report(&[0])), Err(ReportError::NoRepetitions { .. })));
}
