//! Loading, saving and looking into a tokenizer.

use std::ffi::c_char;
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard};

use serde_json::json;
use tokenizers::{AddedToken, ModelWrapper, PostProcessor, Tokenizer};

use crate::abi::{answer, release, Outcome, Span, Text};
use crate::limits::{bounded, Limits};

/// A tokenizer without truncation and padding of its own: both are asked for per call.
pub struct Handle {
    state: RwLock<State>,
}

pub struct State {
    pub main: Tokenizer,
    splitting: OnceLock<Box<Tokenizer>>,
}

impl State {
    /// The tokenizer that treats special tokens in a text as ordinary text, or the usual one.
    pub fn pick(&self, split_special_tokens: bool) -> Outcome<&Tokenizer> {
        if !split_special_tokens {
            return Ok(&self.main);
        }
        if self.splitting.get().is_none() {
            let copy = bounded(Limits::general(0), || {
                let mut copy = self.main.clone();
                copy.set_encode_special_tokens(true);
                Ok(Box::new(copy))
            })?;
            let _ = self.splitting.set(copy); // another thread may have been faster
        }
        Ok(self.splitting.get().map_or(&self.main, |splitting| splitting))
    }
}

impl Handle {
    pub fn new(mut main: Tokenizer) -> Outcome<Handle> {
        main.with_truncation(None)?;
        main.with_padding(None);
        Ok(Handle { state: RwLock::new(State { main, splitting: OnceLock::new() }) })
    }

    pub fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a copy and swaps it in, so that a failed change leaves the tokenizer as it was.
    /// `size` is that of what `edit` reads.
    fn change<T>(
        &self,
        size: usize,
        edit: impl FnOnce(&mut Tokenizer) -> Outcome<T>,
    ) -> Outcome<T> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let (copy, result) = bounded(Limits::general(size), || {
            let mut copy = state.main.clone();
            let result = edit(&mut copy)?;
            Ok((copy, result))
        })?;
        *state = State { main: copy, splitting: OnceLock::new() };
        Ok(result)
    }

    /// What `look` makes of the tokenizer.
    fn look<T>(&self, look: impl FnOnce(&Tokenizer) -> Outcome<T>) -> Outcome<T> {
        let state = self.read();
        bounded(Limits::general(0), || look(&state.main))
    }
}

fn token_json(id: u32, token: &AddedToken) -> serde_json::Value {
    json!({"id": id, "content": token.content, "single_word": token.single_word,
           "lstrip": token.lstrip, "rstrip": token.rstrip, "normalized": token.normalized,
           "special": token.special})
}

fn token_from_json(value: &serde_json::Value) -> Outcome<AddedToken> {
    let content = value["content"].as_str().ok_or("an added token has no \"content\"")?;
    let flag = |name: &str, default: bool| value[name].as_bool().unwrap_or(default);
    let special = flag("special", false);
    Ok(AddedToken::from(content, special)
        .single_word(flag("single_word", false))
        .lstrip(flag("lstrip", false))
        .rstrip(flag("rstrip", false))
        .normalized(flag("normalized", !special)))
}

fn model_type(model: &ModelWrapper) -> &'static str {
    match model {
        ModelWrapper::BPE(_) => "BPE",
        ModelWrapper::WordPiece(_) => "WordPiece",
        ModelWrapper::WordLevel(_) => "WordLevel",
        ModelWrapper::Unigram(_) => "Unigram",
    }
}

#[no_mangle]
pub unsafe extern "C" fn gtc_from_json(
    json_text: Span,
    out: *mut *mut Handle,
    baked: *mut Text,
) -> *mut c_char {
    answer(|| {
        let text = json_text.text()?;
        (*out, *baked) = bounded(Limits::loading(text.len()), || {
            let tokenizer: Tokenizer = text.parse()?;
            let settings = json!({"truncation": tokenizer.get_truncation(),
                                  "padding": tokenizer.get_padding()});
            let handle = Box::new(Handle::new(tokenizer)?);
            Ok((Box::into_raw(handle), Text::new(settings.to_string())))
        })?;
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn gtc_free(tokenizer: *mut Handle) {
    release(tokenizer);
}

#[no_mangle]
pub unsafe extern "C" fn gtc_to_json(
    tokenizer: *const Handle,
    pretty: i32,
    out: *mut Text,
) -> *mut c_char {
    answer(|| {
        *out = (*tokenizer).look(|inner| Ok(Text::new(inner.to_string(pretty != 0)?)))?;
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn gtc_set_component(
    tokenizer: *mut Handle,
    component: Span,
    json_text: Span,
) -> *mut c_char {
    answer(|| {
        let (name, text) = (component.text()?, json_text.text()?);
        (*tokenizer).change(text.len(), |inner| {
            match name {
                "normalizer" => drop(inner.with_normalizer(serde_json::from_str::<
                    Option<tokenizers::NormalizerWrapper>,
                >(text)?)),
                "pre_tokenizer" => drop(inner.with_pre_tokenizer(serde_json::from_str::<
                    Option<tokenizers::PreTokenizerWrapper>,
                >(text)?)),
                "post_processor" => drop(inner.with_post_processor(serde_json::from_str::<
                    Option<tokenizers::PostProcessorWrapper>,
                >(text)?)),
                "decoder" => drop(inner.with_decoder(serde_json::from_str::<
                    Option<tokenizers::DecoderWrapper>,
                >(text)?)),
                other => return Err(format!("a tokenizer has no component {other}").into()),
            }
            Ok(())
        })
    })
}

#[no_mangle]
pub unsafe extern "C" fn gtc_get_component(
    tokenizer: *const Handle,
    component: Span,
    out: *mut Text,
) -> *mut c_char {
    answer(|| {
        let name = component.text()?;
        *out = (*tokenizer).look(|inner| {
            Ok(Text::new(match name {
                "normalizer" => serde_json::to_string(&inner.get_normalizer())?,
                "pre_tokenizer" => serde_json::to_string(&inner.get_pre_tokenizer())?,
                "post_processor" => serde_json::to_string(&inner.get_post_processor())?,
                "decoder" => serde_json::to_string(&inner.get_decoder())?,
                "model_type" => model_type(inner.get_model()).to_string(),
                other => return Err(format!("a tokenizer has no component {other}").into()),
            }))
        })?;
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn gtc_add_tokens(
    tokenizer: *mut Handle,
    json_text: Span,
    added: *mut usize,
) -> *mut c_char {
    answer(|| {
        let text = json_text.text()?;
        *added = (*tokenizer).change(text.len(), |inner| {
            let list: Vec<serde_json::Value> = serde_json::from_str(text)?;
            let tokens = list.iter().map(token_from_json).collect::<Outcome<Vec<_>>>()?;
            Ok(inner.add_tokens(&tokens))
        })?;
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn gtc_added_tokens(tokenizer: *const Handle, out: *mut Text) -> *mut c_char {
    answer(|| {
        *out = (*tokenizer).look(|inner| {
            let mut tokens: Vec<_> = inner.get_added_tokens_decoder().into_iter().collect();
            tokens.sort_by_key(|(id, _)| *id);
            let list: Vec<_> = tokens.iter().map(|(id, token)| token_json(*id, token)).collect();
            Ok(Text::new(serde_json::to_string(&list)?))
        })?;
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn gtc_vocab(tokenizer: *const Handle, out: *mut Text) -> *mut c_char {
    answer(|| {
        *out = (*tokenizer)
            .look(|inner| Ok(Text::new(serde_json::to_string(&inner.get_vocab(true))?)))?;
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn gtc_vocab_size(
    tokenizer: *const Handle,
    with_added: i32,
    out: *mut usize,
) -> *mut c_char {
    answer(|| {
        *out = (*tokenizer).look(|inner| Ok(inner.get_vocab_size(with_added != 0)))?;
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn gtc_token_to_id(
    tokenizer: *const Handle,
    token: Span,
    out: *mut i64,
) -> *mut c_char {
    answer(|| {
        *out = (*tokenizer).read().main.token_to_id(token.text()?).map_or(-1, i64::from);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn gtc_id_to_token(
    tokenizer: *const Handle,
    id: u32,
    out: *mut Text,
) -> *mut c_char {
    answer(|| {
        *out = (*tokenizer).read().main.id_to_token(id).map_or(Text::none(), Text::new);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn gtc_special_tokens_to_add(
    tokenizer: *const Handle,
    pair: i32,
    out: *mut usize,
) -> *mut c_char {
    answer(|| {
        *out = special_tokens_to_add(&(*tokenizer).read().main, pair != 0);
        Ok(())
    })
}

pub fn special_tokens_to_add(tokenizer: &Tokenizer, pair: bool) -> usize {
    tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(pair))
}

#[no_mangle]
pub unsafe extern "C" fn gtc_decode(
    tokenizer: *const Handle,
    ids: *const u32,
    count: usize,
    skip_special_tokens: i32,
    out: *mut Text,
) -> *mut c_char {
    answer(|| {
        let ids = if count == 0 { &[][..] } else { std::slice::from_raw_parts(ids, count) };
        let state = (*tokenizer).read();
        *out = bounded(Limits::encoding(4 * count, 1), || {
            Ok(Text::new(state.main.decode(ids, skip_special_tokens != 0)?))
        })?;
        Ok(())
    })
}
