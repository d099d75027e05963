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
use crate::limits::{bounded, restart, Limits};
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
/// Each thread has its own limits: `size` is that of all inputs.
fn in_parallel(
    count: usize,
    size: usize,
    threads: usize,
    one: impl Fn(usize) -> Outcome<Vec<Window>> + Sync,
) -> Outcome<Vec<Vec<Window>>> {
    let next = AtomicUsize::new(0);
    let helpers = threads.clamp(1, count.div_ceil(BLOCK).max(1)) - 1;
    let limits = Limits::encoding(size, helpers + 1);
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
    let share = || caught(|| bounded(limits, work));
    let mut all = Vec::new();
    all.try_reserve_exact(count)?;
    let add = |part: Outcome<Vec<(usize, Vec<Window>)>>, all: &mut Vec<_>| -> Outcome<()> {
        all.append(&mut part?); // there is room
        Ok(())
    };
    std::thread::scope(|scope| -> Outcome<()> {
        // A thread that the system does not give is done without.
        let start = || std::thread::Builder::new().spawn_scoped(scope, share).ok();
        let running: Vec<_> = (0..helpers).map_while(|_| start()).collect();
        let mut outcome = add(share(), &mut all);
        for thread in running {
            let part = thread.join().unwrap_or_else(|_| Err("a thread ended early".into()));
            outcome = outcome.and(add(part, &mut all));
        }
        outcome
    })?;
    all.sort_unstable_by_key(|(index, _)| *index);
    let mut inputs = Vec::new();
    inputs.try_reserve_exact(count)?;
    inputs.extend(all.into_iter().map(|(_, windows)| windows));
    Ok(inputs)
}

/// The texts of the spans; the error says which of several is not UTF-8.
unsafe fn texts_of<'a>(data: *const Span, count: usize) -> Outcome<Vec<&'a str>> {
    let mut texts = Vec::new();
    texts.try_reserve_exact(count)?;
    for (index, span) in spans(data, count).iter().enumerate() {
        texts.push(span.text().map_err(|error| -> Failure {
            if count == 1 {
                error
            } else {
                format!("text {index} of {count}: {error}").into()
            }
        })?);
    }
    Ok(texts)
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
        let texts = texts_of(first, count)?;
        let pairs = if second.is_null() { None } else { Some(texts_of(second, count)?) };
        let length = |index: usize| {
            texts[index].len() + pairs.as_ref().map_or(0, |pairs| pairs[index].len())
        };
        let size = (0..count).map(length).sum();
        let state = (*tokenizer).read();
        let inner = state.pick(options.split_special_tokens != 0)?;
        let inputs = in_parallel(count, size, threads, |index| {
            restart(length(index));
            let pair = pairs.as_ref().map(|pairs| Sequence::Text(pairs[index]));
            encode_one(inner, &Sequence::Text(texts[index]), pair.as_ref(), &options)
        })?;
        *out = Box::into_raw(Box::new(Encodings { inputs }));
        Ok(())
    })
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
        let one = texts_of(first, first_count)?;
        let other = if second.is_null() { None } else { Some(texts_of(second, second_count)?) };
        let size = one.iter().chain(other.iter().flatten()).map(|word| word.len() + 1).sum();
        let state = (*tokenizer).read();
        let inner = state.pick((*options).split_special_tokens != 0)?;
        *out = bounded(Limits::encoding(size, 1), || {
            let other = other.map(Sequence::Words);
            let windows = encode_one(inner, &Sequence::Words(one), other.as_ref(), &*options)?;
            Ok(Box::into_raw(Box::new(Encodings { inputs: vec![windows] })))
        })?;
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
