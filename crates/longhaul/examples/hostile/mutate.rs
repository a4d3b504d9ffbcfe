//! Mutations of messages: of their values, bytes and lengths.

use serde_json::{Map, Value, json};

use crate::dice::Dice;

/// Limits of integers, lengths and doubles.
const NUMBERS: [&str; 16] = [
    "0",
    "-1",
    "1",
    "127",
    "255",
    "65535",
    "65536",
    "2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "0.5",
];

/// Paths that lead out of the root, and malformed texts.
const TEXTS: [&str; 24] = [
    "",
    ".",
    "..",
    "/",
    "../outside",
    "../../../../etc/passwd",
    "/etc/passwd",
    "a/../../outside",
    "a//b",
    "a/",
    "./a",
    "out",
    "out/secret",
    "absolute/secret",
    "%00",
    "a%00b",
    "%2e%2e/outside",
    "%FF%FE",
    "%zz",
    "%1b[2J%07",
    ".longhaul-00000000000000000000000000000001.journal",
    ".f0.longhaul-00000000-0.part",
    "sub/.longhaul-0.journal",
    "\u{202e}\u{1b}]0;x\u{7}",
];

/// Returns a message as a frame: its length and its bytes.
pub(crate) fn frame(message: &Value) -> Vec<u8> {
    with_length(message.to_string().as_bytes())
}

pub(crate) fn with_length(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_be_bytes(), body].concat()
}

/// Returns a path that leads out of the root, or a long text.
pub(crate) fn text(dice: &mut Dice) -> String {
    match dice.below(12) {
        0 => "a/".repeat(1 + dice.below(3000)),
        1 => "x".repeat(1 + dice.below(5000)),
        _ => (*dice.choose(&TEXTS)).to_owned(),
    }
}

/// Returns a mutated message as bytes.
pub(crate) fn mutated(dice: &mut Dice, message: &Value) -> Vec<u8> {
    match dice.below(10) {
        0..6 => {
            let mut message = message.clone();
            for _ in 0..1 + dice.below(3) {
                change(dice, &mut message);
            }
            number(dice, &message)
        }
        6 | 7 => bytes_changed(dice, frame(message)),
        8 => length_changed(dice, frame(message)),
        _ => noise(dice),
    }
}

/// Changes one value of the message at any depth.
fn change(dice: &mut Dice, value: &mut Value) {
    match value {
        Value::Object(fields) if !fields.is_empty() && dice.chance(85) => {
            let names: Vec<String> = fields.keys().cloned().collect();
            let name = dice.choose(&names).clone();
            if dice.chance(85) {
                change(dice, fields.get_mut(&name).expect("it has the name"));
            } else {
                change_fields(dice, fields, &name);
            }
        }
        Value::Array(items) if !items.is_empty() && dice.chance(85) => {
            let at = dice.below(items.len());
            match dice.below(6) {
                0 => drop(items.remove(at)),
                1 => items.push(items[at].clone()),
                2 => items.extend(vec![items[at].clone(); dice.below(2000)]),
                _ => change(dice, &mut items[at]),
            }
        }
        _ => *value = hostile(dice),
    }
}

fn change_fields(dice: &mut Dice, fields: &mut Map<String, Value>, name: &str) {
    match dice.below(3) {
        0 => drop(fields.remove(name)),
        1 => {
            let value = fields.remove(name).unwrap_or_default();
            fields.insert(text(dice), value);
        }
        _ => drop(fields.insert("more".to_owned(), hostile(dice))),
    }
}

fn hostile(dice: &mut Dice) -> Value {
    match dice.below(8) {
        0 => Value::Null,
        1 => json!([]),
        2 => json!({}),
        3 => json!(true),
        4 => json!([[u64::MAX, 1], [0, u64::MAX]]),
        5 | 6 => json!(text(dice)),
        _ => json!(dice.next() >> dice.below(64)),
    }
}

/// Returns the message as a frame. A number may become one that is valid JSON but no `Value`.
fn number(dice: &mut Dice, message: &Value) -> Vec<u8> {
    let mut body = message.to_string();
    if dice.chance(60) {
        let starts: Vec<usize> = body
            .bytes()
            .enumerate()
            .filter(|(at, byte)| {
                byte.is_ascii_digit()
                    && !body.as_bytes()[at.saturating_sub(1)].is_ascii_alphanumeric()
            })
            .map(|(at, _)| at)
            .collect();
        if !starts.is_empty() {
            let start = *dice.choose(&starts);
            let number = *dice.choose(&NUMBERS);
            let digits = body[start..].bytes().take_while(u8::is_ascii_digit).count();
            body.replace_range(start..start + digits, number);
        }
    }
    with_length(body.as_bytes())
}

fn bytes_changed(dice: &mut Dice, mut frame: Vec<u8>) -> Vec<u8> {
    for _ in 0..1 + dice.below(4) {
        let at = 4 + dice.below(frame.len() - 4);
        frame[at] ^= 1 << dice.below(8);
    }
    frame
}

fn length_changed(dice: &mut Dice, mut frame: Vec<u8>) -> Vec<u8> {
    let length = frame.len() as u32 - 4;
    let lies = [0, 1, length - 1, length + 1, 2 * length, 1 << 20, (1 << 20) + 1, u32::MAX];
    let lie = *dice.choose(&lies);
    frame[..4].copy_from_slice(&lie.to_be_bytes());
    if dice.chance(30) {
        frame.truncate(4 + dice.below(frame.len() - 4));
    }
    frame
}

fn noise(dice: &mut Dice) -> Vec<u8> {
    match dice.below(4) {
        0 => with_length(&b"[".repeat(1 + dice.below(100_000))),
        1 => with_length(&br#"{"a":"#.repeat(1 + dice.below(20_000))),
        2 => {
            let length = dice.below(300);
            with_length(&dice.bytes(length))
        }
        _ => {
            let length = 4 + dice.below(300);
            dice.bytes(length)
        }
    }
}
