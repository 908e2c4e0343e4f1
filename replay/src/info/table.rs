//! Columns of text, as wide as their widest cell.

use std::io::{self, Write};

/// Where a cell stands in its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// Writes rows under a header, two spaces before each column; the last column is not padded.
pub(super) fn write(
    columns: &[(&str, Align)],
    rows: impl IntoIterator<Item = Vec<String>>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let header = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| {
        rows.iter().filter_map(|row: &Vec<String>| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    for row in &rows {
        let mut line = String::new();
        for (position, cell) in row.iter().enumerate() {
            let (width, align) = (widths[position], columns[position].1);
            line.push_str("  ");
            match align {
                Align::Left => line.push_str(&format!("{cell:<width$}")),
                Align::Right => line.push_str(&format!("{cell:>width$}")),
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut out = Vec::new();
        let rows = [vec!["7".to_owned(), "a".to_owned()], vec!["123".to_owned(), "bb".to_owned()]];
        write(&[("n", Align::Right), ("name", Align::Left)], rows, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "    n  name\n    7  a\n  123  bb\n");
    }
}
