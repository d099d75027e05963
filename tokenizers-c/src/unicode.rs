//! What Python's `str` knows of characters: case, and what counts as a letter or a digit.

use std::ffi::c_char;
use std::sync::OnceLock;

use regex::Regex;

use crate::abi::{answer, Span, Text};

fn matches(pattern: &'static OnceLock<Regex>, source: &str, c: char) -> bool {
    let pattern = pattern.get_or_init(|| Regex::new(source).expect("a valid pattern"));
    pattern.is_match(c.encode_utf8(&mut [0; 4]))
}

/// `str.lower()`.
#[no_mangle]
pub unsafe extern "C" fn gtc_lower(text: Span, out: *mut Text) -> *mut c_char {
    answer(|| {
        *out = Text::new(text.text()?.to_lowercase());
        Ok(())
    })
}

/// `str.upper()`.
#[no_mangle]
pub unsafe extern "C" fn gtc_upper(text: Span, out: *mut Text) -> *mut c_char {
    answer(|| {
        *out = Text::new(text.text()?.to_uppercase());
        Ok(())
    })
}

/// Bits: 1 `\w`, 2 `\d`, 4 upper case, 8 lower case, 16 `\w` as Unicode defines it (with marks,
/// without fractions). 0 for what is no character.
#[no_mangle]
pub extern "C" fn gtc_character_class(code_point: u32) -> u32 {
    static WORD: OnceLock<Regex> = OnceLock::new();
    static UNICODE_WORD: OnceLock<Regex> = OnceLock::new();
    static DIGIT: OnceLock<Regex> = OnceLock::new();
    let Some(c) = char::from_u32(code_point) else { return 0 };
    u32::from(matches(&WORD, r"[\p{L}\p{N}_]", c))
        | u32::from(matches(&DIGIT, r"\p{Nd}", c)) << 1
        | u32::from(c.is_uppercase()) << 2
        | u32::from(c.is_lowercase()) << 3
        | u32::from(matches(&UNICODE_WORD, r"\w", c)) << 4
}
