//! Values written as Python writes them: `str()`, `repr()` and `json.dumps()`.

use minijinja::value::{from_args, Kwargs, Rest, Value, ValueKind};
use minijinja::{Error, ErrorKind};

use crate::limits::LIMIT;

pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Every word with a capital first letter and small ones after it; `between` tells what stands
/// between words.
pub fn title(text: &str, between: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut first = true;
    for c in text.chars() {
        if first {
            out.extend(c.to_uppercase());
        } else {
            out.extend(c.to_lowercase());
        }
        first = between(c);
    }
    out
}

/// `repr(float)`: shortest digits, scientific below 1e-4 and from 1e16 on.
fn float_text(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{number}");
    if plain.contains('.') {
        plain
    } else {
        plain + ".0"
    }
}

fn number_text(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float_text)
}

/// Values are nested as deep as that when they are written.
const MAX_DEPTH: usize = 200;

fn check_depth(depth: usize) -> Result<(), Error> {
    if depth <= MAX_DEPTH {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidOperation,
        format!(
            "{LIMIT}depth reached: a value is nested more than {MAX_DEPTH} deep, or contains itself"
        ),
    ))
}

/// `str(value)`.
pub fn text(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(String::new()),
        ValueKind::String => Ok(value.as_str().unwrap_or_default().to_string()),
        _ => {
            let mut out = String::new();
            write_repr(value, 0, &mut out)?;
            Ok(out)
        }
    }
}

/// `repr(value)`.
fn write_repr(value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    check_depth(depth)?;
    match value.kind() {
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number_text(value)),
        ValueKind::String => out.push_str(&string_repr(value.as_str().unwrap_or_default())),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            for (index, item) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                write_repr(&item, depth + 1, out)?;
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                write_repr(&key, depth + 1, out)?;
                out.push_str(": ");
                write_repr(&value.get_item(&key).unwrap_or_default(), depth + 1, out)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

fn string_repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if (c as u32) < 0x20 || (0x7f..=0xa0).contains(&(c as u32)) || c as u32 == 0xad => {
                out.push_str(&format!("\\x{:02x}", c as u32))
            }
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

struct JsonStyle {
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// The `tojson` of transformers: `json.dumps` with `ensure_ascii=False`.
pub fn to_json(value: &Value, args: Rest<Value>) -> Result<Value, Error> {
    type Positional = Option<Value>;
    let (ensure_ascii, indent, separators, sort_keys, kwargs): (
        Positional,
        Positional,
        Positional,
        Positional,
        Kwargs,
    ) = from_args(&args)?;
    let named = |positional: Option<Value>, name: &str| -> Result<Option<Value>, Error> {
        let value = match positional {
            Some(value) => Some(value),
            None => kwargs.get::<Option<Value>>(name)?,
        };
        Ok(value.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let ensure_ascii = named(ensure_ascii, "ensure_ascii")?.is_some_and(|value| value.is_true());
    let indent = named(indent, "indent")?;
    let separators = named(separators, "separators")?;
    let sort_keys = named(sort_keys, "sort_keys")?.is_some_and(|value| value.is_true());
    kwargs.assert_all_used()?;
    let indent = indent.map(|value| match value.as_str() {
        Some(text) => text.to_string(),
        None => " ".repeat(value.as_usize().unwrap_or(0)),
    });
    let (item_separator, key_separator) = match separators {
        Some(pair) => (text(&pair.get_item_by_index(0)?)?, text(&pair.get_item_by_index(1)?)?),
        None => ((if indent.is_some() { "," } else { ", " }).to_string(), ": ".to_string()),
    };
    let style = JsonStyle { ensure_ascii, indent, item_separator, key_separator, sort_keys };
    let mut out = String::new();
    write_json(value, &style, 0, &mut out)?;
    Ok(Value::from_safe_string(out))
}

fn write_json(
    value: &Value,
    style: &JsonStyle,
    depth: usize,
    out: &mut String,
) -> Result<(), Error> {
    check_depth(depth)?;
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&json_number(value)),
        ValueKind::String => {
            json_string(value.as_str().unwrap_or_default(), style.ensure_ascii, out)
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            write_items(&items, ['[', ']'], style, depth, out, |item, out| {
                write_json(item, style, depth + 1, out)
            })?;
        }
        ValueKind::Map => {
            let mut keys: Vec<(String, Value)> = value
                .try_iter()?
                .map(|key| Ok((json_key(&key)?, key)))
                .collect::<Result<_, Error>>()?;
            if style.sort_keys {
                keys.sort_by(|a, b| a.0.cmp(&b.0));
            }
            write_items(&keys, ['{', '}'], style, depth, out, |(name, key), out| {
                json_string(name, style.ensure_ascii, out);
                out.push_str(&style.key_separator);
                write_json(&value.get_item(key)?, style, depth + 1, out)
            })?;
        }
        kind => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("Object of type {kind} is not JSON serializable"),
            ))
        }
    }
    Ok(())
}

fn write_items<T>(
    items: &[T],
    brackets: [char; 2],
    style: &JsonStyle,
    depth: usize,
    out: &mut String,
    mut write: impl FnMut(&T, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    out.push(brackets[0]);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(&style.item_separator);
        }
        new_line(style, depth + 1, out);
        write(item, out)?;
    }
    if !items.is_empty() {
        new_line(style, depth, out);
    }
    out.push(brackets[1]);
    Ok(())
}

fn new_line(style: &JsonStyle, depth: usize, out: &mut String) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        out.push_str(&indent.repeat(depth));
    }
}

fn json_number(value: &Value) -> String {
    match number_text(value).as_str() {
        "nan" => "NaN".into(),
        "inf" => "Infinity".into(),
        "-inf" => "-Infinity".into(),
        text => text.into(),
    }
}

fn json_key(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::None => Ok("null".into()),
        ValueKind::Bool => Ok((if key.is_true() { "true" } else { "false" }).into()),
        ValueKind::Number => Ok(json_number(key)),
        _ => text(key),
    }
}

fn json_string(text: &str, ensure_ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c if ensure_ascii && !c.is_ascii() => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
