//! Chat templates: Jinja set up as transformers sets it up.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};

use minijinja::value::{from_args, Kwargs, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State};

use crate::abi::{answer, release, Failure, Outcome, Span, Text};
use crate::limits::{bounded, factor, Limits, LIMIT};
use crate::python;

const NAME: &str = "chat_template";
const GENERATION: &str = "__gradus_generation";
/// Non-characters around the text of a generation block while spans are asked for.
const BEGIN: char = '\u{fdd0}';
const END: char = '\u{fdd1}';
/// Of `{% generation %}` with blanks in it.
const LONGEST_TAG: usize = 256;
const MAX_SOURCE: usize = 1 << 20;
/// Instructions of one rendering; the longest conversations need a hundredth of it.
const MAX_STEPS: usize = 20_000_000;

thread_local! { static MARKING: Cell<bool> = const { Cell::new(false) }; }

pub struct Template {
    environment: Environment<'static>,
}

#[repr(C)]
pub struct Rendered {
    text: Text,
    spans: *mut usize,
    span_count: usize,
}

/// minijinja has no tags of one's own: `{% generation %}` becomes a call block, with the same
/// white-space rules.
fn rewrite_generation(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let (mut copied, mut position) = (0, 0);
    let mut end = 0; // of the tag, with its "%}"; found once for all tags that begin before it
    while let Some(start) = source[position..].find("{%").map(|at| position + at) {
        if end < start + 4 {
            let Some(length) = source[start + 2..].find("%}") else { break };
            end = start + 2 + length + 2;
        }
        position = start + 2;
        if end - start > LONGEST_TAG {
            continue;
        }
        let (inner, opening) = strip_control(&source[start + 2..end - 2], true);
        let (inner, closing) = strip_control(inner, false);
        let call = match inner.trim() {
            "generation" => format!("{{%{opening} call {GENERATION}() {closing}%}}"),
            "endgeneration" => format!("{{%{opening} endcall {closing}%}}"),
            _ => continue,
        };
        out.push_str(&source[copied..start]);
        out.push_str(&call);
        (copied, position) = (end, end);
    }
    out.push_str(&source[copied..]);
    out
}

fn strip_control(inner: &str, front: bool) -> (&str, &str) {
    for sign in ["-", "+"] {
        let shorter = if front { inner.strip_prefix(sign) } else { inner.strip_suffix(sign) };
        if let Some(shorter) = shorter {
            return (shorter, sign);
        }
    }
    (inner, "")
}

fn generation(state: &State, kwargs: Kwargs) -> Result<Value, Error> {
    let text = python::text(&kwargs.get::<Value>("caller")?.call(state, &[])?)?;
    let text = if MARKING.get() { format!("{BEGIN}{text}{END}") } else { text };
    Ok(Value::from_safe_string(text))
}

fn raise_exception(message: Value) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, python::text(&message)?))
}

extern "C" {
    fn time(out: *mut i64) -> i64;
    fn localtime_r(time: *const i64, out: *mut c_void) -> *mut c_void;
    fn strftime(out: *mut c_char, size: usize, format: *const c_char, time: *const c_void)
        -> usize;
}

fn strftime_now(format: String) -> Result<String, Error> {
    let refuse = || {
        Error::new(
            ErrorKind::InvalidOperation,
            format!("strftime_now cannot write the format {format:?}"),
        )
    };
    if format.is_empty() {
        return Ok(format);
    }
    let pattern = std::ffi::CString::new(format.as_str()).map_err(|_| refuse())?;
    let mut broken_down = [0 as c_int; 32]; // more than any struct tm
    let mut text = vec![0u8; 4096];
    let length = unsafe {
        let now = time(std::ptr::null_mut());
        localtime_r(&now, broken_down.as_mut_ptr() as *mut c_void);
        strftime(
            text.as_mut_ptr() as *mut c_char,
            text.len(),
            pattern.as_ptr(),
            broken_down.as_ptr() as *const c_void,
        )
    };
    text.truncate(length);
    String::from_utf8(text).map_err(|_| refuse())
}

/// String methods of Python where the add-on has none, or another idea of white space.
fn method(state: &State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args);
    };
    let affix = || -> Result<String, Error> { Ok(from_args::<(String,)>(args)?.0) };
    let three = |a: &str, b: &str, c: &str| {
        Value::from(vec![Value::from(a), Value::from(b), Value::from(c)])
    };
    Ok(match name {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<String>,) = from_args(args)?;
            let drop = |c: char| {
                chars.as_ref().map_or_else(|| python::is_space(c), |chars| chars.contains(c))
            };
            Value::from(match name {
                "lstrip" => text.trim_start_matches(drop),
                "rstrip" => text.trim_end_matches(drop),
                _ => text.trim_matches(drop),
            })
        }
        "title" => Value::from(python::title(text, |c| !c.is_alphabetic())),
        "removeprefix" => Value::from(text.strip_prefix(affix()?.as_str()).unwrap_or(text)),
        "removesuffix" => Value::from(text.strip_suffix(affix()?.as_str()).unwrap_or(text)),
        "partition" => {
            let separator = affix()?;
            text.split_once(separator.as_str()).map_or_else(
                || three(text, "", ""),
                |(before, after)| three(before, &separator, after),
            )
        }
        "rpartition" => {
            let separator = affix()?;
            text.rsplit_once(separator.as_str()).map_or_else(
                || three("", "", text),
                |(before, after)| three(before, &separator, after),
            )
        }
        "rsplit" => {
            let (separator, limit): (Option<String>, Option<i64>) = from_args(args)?;
            let Some(separator) = separator else {
                return minijinja_contrib::pycompat::unknown_method_callback(
                    state,
                    value,
                    "split",
                    &[],
                );
            };
            let count =
                limit.filter(|limit| *limit >= 0).map_or(usize::MAX, |limit| limit as usize + 1);
            let mut parts: Vec<Value> =
                text.rsplitn(count, separator.as_str()).map(Value::from).collect();
            parts.reverse();
            Value::from(parts)
        }
        _ => return minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args),
    })
}

fn trim(value: &Value, chars: Option<String>) -> Result<Value, Error> {
    let text = python::text(value)?;
    let drop =
        |c: char| chars.as_ref().map_or_else(|| python::is_space(c), |chars| chars.contains(c));
    Ok(Value::from(text.trim_matches(drop)))
}

/// markupsafe's spelling of the escapes.
fn escape(value: &Value) -> Result<Value, Error> {
    let text = python::text(value)?;
    let text = text
        .replace('&', "&amp;")
        .replace('>', "&gt;")
        .replace('<', "&lt;")
        .replace('\'', "&#39;")
        .replace('"', "&#34;");
    Ok(Value::from_safe_string(text))
}

fn title(value: &Value) -> Result<String, Error> {
    Ok(python::title(&python::text(value)?, |c| python::is_space(c) || "-({[<".contains(c)))
}

fn environment(source: &str) -> Outcome<Environment<'static>> {
    if source.len() > MAX_SOURCE.saturating_mul(factor()) {
        return Err(format!(
            "{LIMIT}size reached: {} bytes, at most {} are parsed",
            source.len(),
            MAX_SOURCE.saturating_mul(factor())
        )
        .into());
    }
    let mut environment = Environment::new();
    environment.set_fuel(Some(MAX_STEPS.saturating_mul(factor()) as u64));
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(method);
    environment.set_formatter(|out, _, value| {
        out.write_str(&python::text(value)?)
            .map_err(|_| Error::new(ErrorKind::WriteFailure, "cannot write"))
    });
    environment.add_filter("tojson", python::to_json);
    environment.add_filter("string", |value: &Value| python::text(value));
    environment.add_filter("trim", trim);
    environment.add_filter("title", title);
    environment.add_filter("e", escape);
    environment.add_filter("escape", escape);
    environment.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map)
    });
    environment
        .add_test("iterable", |value: &Value| value.as_str().is_some() || value.try_iter().is_ok());
    environment.add_test("number", |value: &Value| {
        matches!(value.kind(), ValueKind::Number | ValueKind::Bool)
    });
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_function(GENERATION, generation);
    environment.add_template_owned(NAME, rewrite_generation(source)).map_err(explain)?;
    Ok(environment)
}

/// Which limit the error is about, if it is about one, with the line.
fn limit_of(error: &Error) -> Option<String> {
    let mut text = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => {
            let steps = MAX_STEPS.saturating_mul(factor());
            format!("{LIMIT}steps reached: more than {steps} instructions")
        }
        (_, Some(detail)) if detail.starts_with(LIMIT) => detail.to_string(),
        _ => {
            let below = std::error::Error::source(error)?;
            return limit_of(below.downcast_ref::<Error>()?);
        }
    };
    if let Some(line) = error.line() {
        text.push_str(&format!(" (line {line})"));
    }
    Some(text)
}

/// The error with its line, and what lies below it.
fn explain(error: Error) -> Failure {
    if let Some(limit) = limit_of(&error) {
        return limit.into();
    }
    let mut text = match error.detail() {
        Some(detail) if error.kind() == ErrorKind::InvalidOperation => detail.to_string(),
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    if let Some(line) = error.line() {
        text.push_str(&format!(" (line {line})"));
    }
    let mut below = std::error::Error::source(&error);
    while let Some(cause) = below {
        text.push_str(&format!("; {cause}"));
        below = cause.source();
    }
    text.into()
}

/// Takes the marks out; the spans between them, in characters of what remains.
fn take_marks(marked: &str) -> (String, Vec<usize>) {
    let (mut text, mut spans, mut open, mut position) =
        (String::with_capacity(marked.len()), Vec::new(), Vec::new(), 0);
    for c in marked.chars() {
        match c {
            BEGIN => open.push(position),
            END => spans.extend([open.pop().unwrap_or(position), position]),
            c => {
                text.push(c);
                position += 1;
            }
        }
    }
    (text, spans)
}

#[no_mangle]
pub unsafe extern "C" fn gtc_template_new(source: Span, out: *mut *mut Template) -> *mut c_char {
    answer(|| {
        let source = source.text()?;
        *out = bounded(Limits::template(source.len()), || {
            Ok(Box::into_raw(Box::new(Template { environment: environment(source)? })))
        })?;
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn gtc_template_render(
    template: *const Template,
    context: Span,
    want_spans: i32,
    out: *mut Rendered,
) -> *mut c_char {
    answer(|| {
        let context = context.text()?;
        let marked = want_spans != 0;
        *out = bounded(Limits::template(context.len()), || render(&*template, context, marked))?;
        Ok(())
    })
}

fn render(template: &Template, context: &str, want_spans: bool) -> Outcome<Rendered> {
    let context: serde_json::Value = serde_json::from_str(context)?;
    let context = Value::from_serialize(&context);
    let compiled = template.environment.get_template(NAME).map_err(explain)?;
    MARKING.set(false);
    let text = compiled.render(&context).map_err(explain)?;
    let mut spans = Vec::new();
    if want_spans {
        MARKING.set(true);
        let marked = compiled.render(&context);
        MARKING.set(false);
        let (plain, found) = take_marks(&marked.map_err(explain)?);
        if plain != text {
            return Err("the text of a {% generation %} block is changed after it was written; \
                        its tokens cannot be told"
                .into());
        }
        spans = found;
    }
    let spans = spans.into_boxed_slice();
    let span_count = spans.len() / 2;
    Ok(Rendered { text: Text::new(text), spans: Box::into_raw(spans) as *mut usize, span_count })
}

#[no_mangle]
pub unsafe extern "C" fn gtc_template_free(template: *mut Template) {
    release(template);
}

#[no_mangle]
pub unsafe extern "C" fn gtc_rendered_free(rendered: Rendered) {
    crate::abi::gtc_text_free(rendered.text);
    if !rendered.spans.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(
            rendered.spans,
            2 * rendered.span_count,
        )));
    }
}
