//! New tokenizers from text files, with the pipelines of the Python package's ready-made ones.

use std::ffi::c_char;

use serde_json::Value;
use tokenizers::models::bpe::{BpeTrainerBuilder, BPE};
use tokenizers::models::unigram::{Unigram, UnigramTrainerBuilder};
use tokenizers::models::wordpiece::{WordPiece, WordPieceTrainerBuilder};
use tokenizers::models::TrainerWrapper;
use tokenizers::normalizers::{BertNormalizer, NFKC};
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{AddedToken, Tokenizer};

use crate::abi::{answer, spans, Outcome, Span};
use crate::tokenizer::Handle;

struct Options(Value);

impl Options {
    fn count(&self, name: &str, default: u64) -> u64 {
        self.0[name].as_u64().unwrap_or(default)
    }

    fn flag(&self, name: &str, default: bool) -> bool {
        self.0[name].as_bool().unwrap_or(default)
    }

    fn text(&self, name: &str, default: &str) -> String {
        self.0[name].as_str().unwrap_or(default).to_string()
    }

    fn special_tokens(&self) -> Vec<AddedToken> {
        let list = self.0["special_tokens"].as_array().cloned().unwrap_or_default();
        list.iter()
            .filter_map(Value::as_str)
            .map(|content| AddedToken::from(content, true))
            .collect()
    }
}

fn byte_level_bpe(options: &Options, files: Vec<String>) -> Outcome<Tokenizer> {
    let mut tokenizer = Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(ByteLevel::new(
        options.flag("add_prefix_space", false),
        true,
        true,
    )));
    tokenizer.with_decoder(Some(ByteLevel::new(true, true, true)));
    tokenizer.with_post_processor(Some(ByteLevel::new(
        true,
        options.flag("trim_offsets", false),
        true,
    )));
    let mut trainer: TrainerWrapper = BpeTrainerBuilder::new()
        .show_progress(false)
        .vocab_size(options.count("vocab_size", 30_000) as usize)
        .min_frequency(options.count("min_frequency", 2))
        .special_tokens(options.special_tokens())
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build()
        .into();
    tokenizer.train_from_files(&mut trainer, files)?;
    Ok(tokenizer)
}

fn word_piece(options: &Options, files: Vec<String>) -> Outcome<Tokenizer> {
    let unknown = options.text("unk_token", "[UNK]");
    let mut tokenizer = Tokenizer::new(WordPiece::builder().unk_token(unknown).build()?);
    let lowercase = options.flag("lowercase", true);
    let strip_accents = options.0["strip_accents"].as_bool();
    tokenizer.with_normalizer(Some(BertNormalizer::new(
        true,
        options.flag("handle_chinese_chars", true),
        strip_accents,
        lowercase,
    )));
    tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
    tokenizer.with_decoder(Some(tokenizers::decoders::wordpiece::WordPiece::default()));
    let mut builder = WordPieceTrainerBuilder::new()
        .show_progress(false)
        .vocab_size(options.count("vocab_size", 30_000) as usize)
        .min_frequency(options.count("min_frequency", 2))
        .special_tokens(options.special_tokens());
    builder = builder.limit_alphabet(options.count("limit_alphabet", 1000) as usize);
    let mut trainer: TrainerWrapper = builder.build().into();
    tokenizer.train_from_files(&mut trainer, files)?;
    surround(
        &mut tokenizer,
        &options.text("cls_token", "[CLS]"),
        &options.text("sep_token", "[SEP]"),
    )?;
    Ok(tokenizer)
}

/// `[CLS] a [SEP] b [SEP]`, when both tokens are in the vocabulary.
fn surround(tokenizer: &mut Tokenizer, cls: &str, sep: &str) -> Outcome<()> {
    if let (Some(cls_id), Some(sep_id)) = (tokenizer.token_to_id(cls), tokenizer.token_to_id(sep)) {
        let processor = TemplateProcessing::builder()
            .try_single(format!("{cls}:0 $A:0 {sep}:0"))?
            .try_pair(format!("{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1"))?
            .special_tokens(vec![(cls.to_string(), cls_id), (sep.to_string(), sep_id)])
            .build()?;
        tokenizer.with_post_processor(Some(processor));
    }
    Ok(())
}

fn unigram(options: &Options, files: Vec<String>) -> Outcome<Tokenizer> {
    let mut tokenizer = Tokenizer::new(Unigram::default());
    tokenizer.with_normalizer(Some(NFKC));
    let spaces = || Metaspace::new('▁', PrependScheme::Always, true);
    tokenizer.with_pre_tokenizer(Some(spaces()));
    tokenizer.with_decoder(Some(spaces()));
    let mut builder = UnigramTrainerBuilder::default();
    builder
        .show_progress(false)
        .vocab_size(options.count("vocab_size", 8_000) as u32)
        .special_tokens(options.special_tokens())
        .unk_token(Some(options.text("unk_token", "<unk>")));
    let mut trainer: TrainerWrapper = builder.build()?.into();
    tokenizer.train_from_files(&mut trainer, files)?;
    Ok(tokenizer)
}

#[no_mangle]
pub unsafe extern "C" fn gtc_train(
    files: *const Span,
    count: usize,
    options: Span,
    out: *mut *mut Handle,
) -> *mut c_char {
    answer(|| {
        let options = Options(serde_json::from_str(options.text()?)?);
        let files = spans(files, count)
            .iter()
            .map(|file| Ok(file.text()?.to_string()))
            .collect::<Outcome<Vec<_>>>()?;
        let tokenizer = match options.text("kind", "").as_str() {
            "bpe" => byte_level_bpe(&options, files)?,
            "wordpiece" => word_piece(&options, files)?,
            "unigram" => unigram(&options, files)?,
            other => return Err(format!("cannot train a tokenizer of kind \"{other}\"").into()),
        };
        *out = Box::into_raw(Box::new(Handle::new(tokenizer)?));
        Ok(())
    })
}
