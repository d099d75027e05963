//! Text to ids. The steps of `Tokenizer::encode` are taken one by one, so that truncation is a
//! parameter of the call and a shared tokenizer is never changed.

use std::ffi::c_char;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokenizers::tokenizer::{Model, PreTokenizer};
use tokenizers::{
    Encoding, OffsetType, PostProcessor, Tokenizer, TruncationDirection, TruncationParams,
    TruncationStrategy,
};

use crate::abi::{answer, caught, release, spans, Failure, Outcome, Span};
use crate::tokenizer::{special_tokens_to_add, Handle};

#[repr(C)]
#[derive(Clone, Copy)]
pub struct EncodeOptions {
    max_length: usize,
    stride: usize,
    truncation: i32,
    truncate_left: i32,
    add_special_tokens: i32,
    details: i32,
    split_special_tokens: i32,
}

#[repr(C)]
pub struct WindowView {
    length: usize,
    ids: *const u32,
    type_ids: *const u32,
    attention_mask: *const u32,
    special_tokens_mask: *const u32,
    offsets: *const u64,
    word_ids: *const i64,
    sequence_ids: *const i64,
}

struct Window {
    encoding: Encoding,
    details: Option<Details>,
}

struct Details {
    offsets: Vec<u64>,
    word_ids: Vec<i64>,
    sequence_ids: Vec<i64>,
}

/// One list of windows per input: the encoding and what did not fit into it.
pub struct Encodings {
    inputs: Vec<Vec<Window>>,
}

enum Sequence<'a> {
    Text(&'a str),
    Words(Vec<&'a str>),
}

fn encode_text(
    tokenizer: &Tokenizer,
    text: &str,
    word: Option<u32>,
    type_id: u32,
    offsets: OffsetType,
) -> Outcome<Encoding> {
    let mut pieces =
        tokenizer.get_added_vocabulary().extract_and_normalize(tokenizer.get_normalizer(), text);
    if let Some(pre_tokenizer) = tokenizer.get_pre_tokenizer() {
        pre_tokenizer.pre_tokenize(&mut pieces)?;
    }
    pieces.tokenize(|piece| tokenizer.get_model().tokenize(piece.get()))?;
    pieces.into_encoding(word, type_id, offsets)
}

fn encode_sequence(
    tokenizer: &Tokenizer,
    sequence: &Sequence,
    type_id: u32,
    details: bool,
) -> Outcome<Encoding> {
    let offsets = || if details { OffsetType::Char } else { OffsetType::None };
    match sequence {
        Sequence::Text(text) => encode_text(tokenizer, text, None, type_id, offsets()),
        Sequence::Words(words) => words
            .iter()
            .enumerate()
            .map(|(index, word)| {
                encode_text(tokenizer, word, Some(index as u32), type_id, offsets())
            })
            .collect(),
    }
}

fn truncate(
    first: Encoding,
    second: Option<Encoding>,
    options: &EncodeOptions,
    special: usize,
) -> Outcome<(Encoding, Option<Encoding>)> {
    let strategy = match options.truncation {
        1 => TruncationStrategy::LongestFirst,
        2 => TruncationStrategy::OnlyFirst,
        3 => TruncationStrategy::OnlySecond,
        _ => return Ok((first, second)),
    };
    let room = options.max_length.checked_sub(special).ok_or_else(|| -> Failure {
        format!(
            "max_length {} leaves no room for the {} special tokens",
            options.max_length, special
        )
        .into()
    })?;
    if room > 0 && options.stride >= room {
        return Err(format!(
            "stride {} must be below {}: max_length {} less {} special tokens",
            options.stride, room, options.max_length, special
        )
        .into());
    }
    let direction = if options.truncate_left != 0 {
        TruncationDirection::Left
    } else {
        TruncationDirection::Right
    };
    let params = TruncationParams { max_length: room, stride: options.stride, strategy, direction };
    tokenizers::truncate_encodings(first, second, &params)
}

fn merge(first: Encoding, second: Option<Encoding>) -> Encoding {
    let mut whole = first;
    if let Some(mut other) = second {
        whole.set_sequence_id(0);
        other.set_sequence_id(1);
        let length = other.len();
        other.set_type_ids(vec![1; length]);
        whole.merge_with(other, false);
    }
    whole
}

fn encode_one(
    tokenizer: &Tokenizer,
    first: &Sequence,
    second: Option<&Sequence>,
    options: &EncodeOptions,
) -> Outcome<Vec<Window>> {
    let details = options.details != 0;
    let one = encode_sequence(tokenizer, first, 0, details)?;
    let other =
        second.map(|sequence| encode_sequence(tokenizer, sequence, 1, details)).transpose()?;
    let add_special = options.add_special_tokens != 0;
    let special = if add_special { special_tokens_to_add(tokenizer, other.is_some()) } else { 0 };
    let (one, other) = truncate(one, other, options, special)?;
    let mut whole = match tokenizer.get_post_processor() {
        Some(processor) => processor.process(one, other, add_special)?,
        None => merge(one, other),
    };
    let rest = whole.take_overflowing();
    Ok(std::iter::once(whole).chain(rest).map(|encoding| window(encoding, details)).collect())
}

fn window(encoding: Encoding, details: bool) -> Window {
    let details = details.then(|| Details {
        offsets: encoding
            .get_offsets()
            .iter()
            .flat_map(|(begin, end)| [*begin as u64, *end as u64])
            .collect(),
        word_ids: encoding.get_word_ids().iter().map(|word| word.map_or(-1, i64::from)).collect(),
        sequence_ids: encoding
            .get_sequence_ids()
            .iter()
            .map(|sequence| sequence.map_or(-1, |index| index as i64))
            .collect(),
    });
    Window { encoding, details }
}

const BLOCK: usize = 16;

/// Runs `one(index)` for every index, in blocks shared out among the threads; results in order.
fn in_parallel(
    count: usize,
    threads: usize,
    one: impl Fn(usize) -> Outcome<Vec<Window>> + Sync,
) -> Outcome<Vec<Vec<Window>>> {
    let next = AtomicUsize::new(0);
    let work = || -> Outcome<Vec<(usize, Vec<Window>)>> {
        let mut done = Vec::new();
        loop {
            let begin = next.fetch_add(BLOCK, Ordering::Relaxed);
            if begin >= count {
                return Ok(done);
            }
            for index in begin..count.min(begin + BLOCK) {
                let windows = one(index).map_err(|error| -> Failure {
                    if count == 1 {
                        error
                    } else {
                        format!("text {index} of {count}: {error}").into()
                    }
                })?;
                done.push((index, windows));
            }
        }
    };
    let helpers = threads.clamp(1, count.div_ceil(BLOCK).max(1)) - 1;
    let mut parts: Vec<Outcome<Vec<(usize, Vec<Window>)>>> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..helpers).map(|_| scope.spawn(|| caught(work))).collect();
        let mine = caught(work);
        let mut parts: Vec<_> = running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a thread ended early".into())))
            .collect();
        parts.push(mine);
        parts
    });
    let mut all = Vec::with_capacity(count);
    for part in parts.drain(..) {
        all.append(&mut part?);
    }
    all.sort_unstable_by_key(|(index, _)| *index);
    Ok(all.into_iter().map(|(_, windows)| windows).collect())
}

#[no_mangle]
pub unsafe extern "C" fn gtc_encode(
    tokenizer: *const Handle,
    first: *const Span,
    second: *const Span,
    count: usize,
    options: *const EncodeOptions,
    threads: usize,
    out: *mut *mut Encodings,
) -> *mut c_char {
    answer(|| {
        let options = *options;
        let texts =
            spans(first, count).iter().map(|span| span.text()).collect::<Outcome<Vec<&str>>>();
        let texts = texts.map_err(|error| invalid(first, count, error))?;
        let pairs = if second.is_null() {
            None
        } else {
            Some(
                spans(second, count)
                    .iter()
                    .map(|span| span.text())
                    .collect::<Outcome<Vec<&str>>>()?,
            )
        };
        let state = (*tokenizer).read();
        let inner = state.pick(options.split_special_tokens != 0);
        let inputs = in_parallel(count, threads, |index| {
            let pair = pairs.as_ref().map(|pairs| Sequence::Text(pairs[index]));
            encode_one(inner, &Sequence::Text(texts[index]), pair.as_ref(), &options)
        })?;
        *out = Box::into_raw(Box::new(Encodings { inputs }));
        Ok(())
    })
}

/// Says which of several texts is not UTF-8.
unsafe fn invalid(first: *const Span, count: usize, error: Failure) -> Failure {
    if count == 1 {
        return error;
    }
    let bad = spans(first, count).iter().position(|span| span.text().is_err()).unwrap_or(0);
    format!("text {bad} of {count}: {error}").into()
}

#[no_mangle]
pub unsafe extern "C" fn gtc_encode_words(
    tokenizer: *const Handle,
    first: *const Span,
    first_count: usize,
    second: *const Span,
    second_count: usize,
    options: *const EncodeOptions,
    out: *mut *mut Encodings,
) -> *mut c_char {
    answer(|| {
        let words = |data: *const Span, count: usize| -> Outcome<Sequence> {
            Ok(Sequence::Words(
                spans(data, count).iter().map(|span| span.text()).collect::<Outcome<Vec<_>>>()?,
            ))
        };
        let one = words(first, first_count)?;
        let other = if second.is_null() { None } else { Some(words(second, second_count)?) };
        let state = (*tokenizer).read();
        let inner = state.pick((*options).split_special_tokens != 0);
        let windows = encode_one(inner, &one, other.as_ref(), &*options)?;
        *out = Box::into_raw(Box::new(Encodings { inputs: vec![windows] }));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn gtc_window_count(encodings: *const Encodings, input: usize) -> usize {
    let inputs = &(*encodings).inputs;
    inputs.get(input).map_or(0, Vec::len)
}

#[no_mangle]
pub unsafe extern "C" fn gtc_get_window(
    encodings: *const Encodings,
    input: usize,
    window: usize,
    out: *mut WindowView,
) {
    let inputs = &(*encodings).inputs;
    let Some(found) = inputs.get(input).and_then(|windows| windows.get(window)) else { return };
    let encoding = &found.encoding;
    let none = || std::ptr::null();
    *out = WindowView {
        length: encoding.len(),
        ids: encoding.get_ids().as_ptr(),
        type_ids: encoding.get_type_ids().as_ptr(),
        attention_mask: encoding.get_attention_mask().as_ptr(),
        special_tokens_mask: encoding.get_special_tokens_mask().as_ptr(),
        offsets: found.details.as_ref().map_or_else(none, |details| details.offsets.as_ptr()),
        word_ids: found
            .details
            .as_ref()
            .map_or_else(|| std::ptr::null(), |details| details.word_ids.as_ptr()),
        sequence_ids: found
            .details
            .as_ref()
            .map_or_else(|| std::ptr::null(), |details| details.sequence_ids.as_ptr()),
    };
}

#[no_mangle]
pub unsafe extern "C" fn gtc_encodings_free(encodings: *mut Encodings) {
    release(encodings);
}
