//! Regular expressions over the `fancy-regex` crate: look-around and back references work, and no
//! text makes the search recurse.

use std::ffi::c_char;

use fancy_regex::Regex;

use crate::abi::{answer, release, Span};
use crate::limits::{bounded, Limits};

pub struct Expression {
    regex: Regex,
}

/// `whole` is not 0: the expression has to match from the first character to the last.
#[no_mangle]
pub unsafe extern "C" fn gtc_regex_new(
    pattern: Span,
    whole: i32,
    out: *mut *mut Expression,
) -> *mut c_char {
    answer(|| {
        let pattern = pattern.text()?;
        *out = bounded(Limits::template(pattern.len()), || {
            let mut regex = Regex::new(pattern)?; // complains about the caller's own text
            if whole != 0 {
                regex = Regex::new(&format!(r"\A(?:{pattern})\z"))?;
            }
            Ok(Box::into_raw(Box::new(Expression { regex })))
        })?;
        Ok(())
    })
}

/// Writes the first byte and the end of the match and of its first `groups - 1` groups; both are
/// `usize::MAX` for a group without a match, or without the expression having it.
#[no_mangle]
pub unsafe extern "C" fn gtc_regex_find(
    expression: *const Expression,
    text: Span,
    groups: usize,
    out: *mut usize,
    found: *mut i32,
) -> *mut c_char {
    answer(|| {
        let text = text.text()?;
        let captures = bounded(Limits::template(text.len()), || {
            Ok((*expression).regex.captures(text)?)
        })?;
        *found = i32::from(captures.is_some());
        for group in 0..groups {
            let part = captures.as_ref().and_then(|captures| captures.get(group));
            *out.add(2 * group) = part.map_or(usize::MAX, |part| part.start());
            *out.add(2 * group + 1) = part.map_or(usize::MAX, |part| part.end());
        }
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn gtc_regex_free(expression: *mut Expression) {
    release(expression);
}
