//! What every entry point shares: borrowed and owned text, errors as strings, and the wall no
//! panic passes.

use std::ffi::c_char;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

pub type Failure = Box<dyn std::error::Error + Send + Sync>;
pub type Outcome<T> = Result<T, Failure>;

/// Borrowed text of the caller.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Span {
    data: *const c_char,
    size: usize,
}

impl Span {
    /// The bytes as text. The caller keeps them alive for `'a`.
    pub unsafe fn text<'a>(self) -> Outcome<&'a str> {
        if self.size == 0 {
            return Ok("");
        }
        let bytes = std::slice::from_raw_parts(self.data as *const u8, self.size);
        std::str::from_utf8(bytes)
            .map_err(|error| format!("not valid UTF-8 at byte {}", error.valid_up_to()).into())
    }
}

/// `count` spans at `data`; an empty list may be null.
pub unsafe fn spans<'a>(data: *const Span, count: usize) -> &'a [Span] {
    if count == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, count)
    }
}

/// Owned text handed to the caller.
#[repr(C)]
pub struct Text {
    data: *mut c_char,
    size: usize,
}

impl Text {
    pub fn none() -> Text {
        Text { data: std::ptr::null_mut(), size: 0 }
    }

    pub fn new(text: String) -> Text {
        let bytes = text.into_bytes().into_boxed_slice();
        let size = bytes.len();
        Text { data: Box::into_raw(bytes) as *mut c_char, size }
    }

    unsafe fn release(self) {
        if !self.data.is_null() {
            drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(
                self.data as *mut u8,
                self.size,
            )));
        }
    }
}

fn panic_text(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()))
        .unwrap_or_else(|| "internal error".into())
}

/// Runs `body` without letting an unwind or a message out, as an error text either way.
pub fn caught<T>(body: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(outcome) => outcome,
        Err(panic) => Err(crate::limits::panic_error(panic_text(panic)).into()),
    }
}

/// The return value of an entry point: null, or the error as a C string.
pub fn answer(body: impl FnOnce() -> Outcome<()>) -> *mut c_char {
    match caught(body) {
        Ok(()) => std::ptr::null_mut(),
        Err(error) => {
            let bytes: Vec<u8> = error
                .to_string()
                .into_bytes()
                .into_iter()
                .map(|byte| if byte == 0 { b' ' } else { byte })
                .collect();
            std::ffi::CString::new(bytes).unwrap_or_default().into_raw()
        }
    }
}

/// Frees a handle made by `Box::into_raw`; null is allowed.
pub unsafe fn release<T>(handle: *mut T) {
    if !handle.is_null() {
        let _ = caught(|| {
            drop(Box::from_raw(handle));
            Ok(())
        });
    }
}

#[no_mangle]
pub unsafe extern "C" fn gtc_string_free(text: *mut c_char) {
    if !text.is_null() {
        drop(std::ffi::CString::from_raw(text));
    }
}

#[no_mangle]
pub unsafe extern "C" fn gtc_text_free(text: Text) {
    text.release();
}
