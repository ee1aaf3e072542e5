//! The compiled opponent: every line's top-level `type`, by one forward depth-aware scan.
//!
//! Reads with `read_line` into one `String` that is used again, steps over strings
//! (a backslash takes the byte behind it along), and stops in each line at the first
//! string `type` at the top level that a colon follows. Counts the lines of every
//! type and keeps the offsets of the message lines, as a reader of transcripts must.
//!
//!     scan FILE REPETITIONS MESSAGE_TYPE...
//!
//! prints one JSON object: the time of each repetition, opening the file included,
//! and the counts. A type is compared as it is spelled in the line, between its quotes.

use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::time::Instant;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[derive(Default)]
struct Counts {
    nbytes: u64,
    torn_nbytes: u64,
    lines: u64,
    untyped: u64,
    types: Vec<(Vec<u8>, u64)>,
    message_offsets: Vec<u64>,
}

/// Whether some byte of `word` is a quote or a backslash.
#[inline(always)]
fn has_quote_or_backslash(word: u64) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let zero = |bytes: u64| bytes.wrapping_sub(ONES) & !bytes;
    (zero(quote) | zero(backslash)) & HIGHS != 0
}

/// The offset of the quote that closes the string whose text starts at `at`, or the line's end.
#[inline]
fn string_end(line: &[u8], mut at: usize) -> usize {
    loop {
        // Plain text, eight bytes at a time: most bytes of a transcript are inside strings.
        while let Some(octets) = line.get(at..at + 8) {
            let word = u64::from_le_bytes(octets.try_into().expect("eight bytes"));
            if has_quote_or_backslash(word) {
                break;
            }
            at += 8;
        }
        loop {
            match line.get(at) {
                None => return line.len(),
                Some(b'"') => return at,
                Some(b'\\') => {
                    at += 2;
                    break;
                }
                Some(_) => at += 1,
            }
        }
    }
}

/// The offset of the first byte at or behind `at` that is not JSON white space.
#[inline]
fn skip_white(line: &[u8], mut at: usize) -> usize {
    while matches!(line.get(at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
        at += 1;
    }
    at
}

/// The text of the string value of the line's top-level `type`, if it has one.
fn top_level_type(line: &[u8]) -> Option<&[u8]> {
    let mut at = skip_white(line, 0);
    if line.get(at) != Some(&b'{') {
        return None;
    }
    at += 1;
    let mut depth = 1usize;
    while let Some(octet) = line.get(at) {
        at += 1;
        match octet {
            b'"' => {
                let start = at;
                let end = string_end(line, start);
                at = end + 1;
                if depth == 1 && line.get(start..end) == Some(b"type") {
                    let colon = skip_white(line, at);
                    if line.get(colon) == Some(&b':') {
                        let value = skip_white(line, colon + 1);
                        if line.get(value) != Some(&b'"') {
                            return None;
                        }
                        return line.get(value + 1..string_end(line, value + 1));
                    }
                }
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return None;
                }
            }
            _ => {}
        }
    }
    None
}

fn scan(path: &str, message_types: &[String]) -> io::Result<Counts> {
    let mut counts = Counts::default();
    let mut reader = BufReader::new(File::open(path)?);
    let mut line = String::new();
    loop {
        line.clear();
        let nbytes = reader.read_line(&mut line)?;
        if nbytes == 0 {
            return Ok(counts);
        }
        let offset = counts.nbytes;
        counts.nbytes += nbytes as u64;
        let mut octets = line.as_bytes();
        if octets.last() != Some(&b'\n') {
            counts.torn_nbytes = nbytes as u64;
            return Ok(counts);
        }
        counts.lines += 1;
        if offset == 0 {
            octets = octets.strip_prefix(BYTE_ORDER_MARK).unwrap_or(octets);
        }
        let Some(found) = top_level_type(octets) else {
            counts.untyped += 1;
            continue;
        };
        // A transcript has a handful of types: looking through them beats hashing.
        match counts.types.iter_mut().find(|(name, _)| name == found) {
            Some((_, count)) => *count += 1,
            None => counts.types.push((found.to_vec(), 1)),
        }
        if message_types.iter().any(|name| name.as_bytes() == found) {
            counts.message_offsets.push(offset);
        }
    }
}

fn print(ns: &[u128], counts: &Counts) {
    let times: Vec<String> = ns.iter().map(u128::to_string).collect();
    let types: Vec<String> = counts
        .types
        .iter()
        .map(|(name, count)| format!("\"{}\":{count}", String::from_utf8_lossy(name)))
        .collect();
    // One number for all offsets, so that two scans can be compared without printing them.
    let offset_sum = counts
        .message_offsets
        .iter()
        .fold(0u64, |sum, offset| sum.wrapping_add(*offset));
    println!(
        "{{\"ns\":[{}],\"nbytes\":{},\"torn_nbytes\":{},\"lines\":{},\"untyped\":{},\
         \"types\":{{{}}},\"messages\":{},\"offset_sum\":{offset_sum}}}",
        times.join(","),
        counts.nbytes,
        counts.torn_nbytes,
        counts.lines,
        counts.untyped,
        types.join(","),
        counts.message_offsets.len(),
    );
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (path, repetitions) = match (arguments.first(), arguments.get(1).map(|n| n.parse())) {
        (Some(path), Some(Ok(n))) if n > 0usize => (path, n),
        _ => {
            eprintln!("usage: scan FILE REPETITIONS MESSAGE_TYPE...");
            std::process::exit(2);
        }
    };
    let mut ns = Vec::with_capacity(repetitions);
    let mut counts = Counts::default();
    for _ in 0..repetitions {
        let start = Instant::now();
        counts = scan(path, &arguments[2..])?;
        ns.push(start.elapsed().as_nanos());
    }
    print(&ns, &counts);
    Ok(())
}
