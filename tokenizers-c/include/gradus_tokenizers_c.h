// The C ABI of tokenizers-c: the Hugging Face `tokenizers` crate, the `minijinja` crate and the
// `fancy-regex` crate for gradus.
//
// Every function that can fail returns NULL, or an error text to be released with
// gtc_string_free(); its outputs are then untouched. No panic leaves the library and nothing is
// printed. Texts are UTF-8 with a length and may hold NUL. Handles may be used by several threads
// at once; gtc_add_tokens and gtc_set_component wait for running encodes.
//
// Calls have limits of memory, processor time and depth; the environment variable
// GRADUS_LIMIT_FACTOR=N raises those of memory, time and steps. The error text of a call that
// reached one begins with GTC_LIMIT; what the call had allocated is lost. gtc_train has no limits:
// its files are the caller's own. A handler of SIGSEGV turns a full stack of a call into such an
// error and passes every other fault on to the handler before it.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GTC_LIMIT "limit of "

typedef struct gtc_tokenizer gtc_tokenizer;
typedef struct gtc_encodings gtc_encodings;
typedef struct gtc_template gtc_template;
typedef struct gtc_regex gtc_regex;

typedef struct gtc_span {  // borrowed text
  const char* data;
  size_t size;
} gtc_span;

typedef struct gtc_text {  // owned text, released with gtc_text_free()
  char* data;
  size_t size;
} gtc_text;

enum gtc_truncation {
  GTC_NO_TRUNCATION = 0,
  GTC_LONGEST_FIRST = 1,
  GTC_ONLY_FIRST = 2,
  GTC_ONLY_SECOND = 3
};

typedef struct gtc_encode_options {
  size_t max_length;      // read when truncation is not GTC_NO_TRUNCATION
  size_t stride;          // tokens repeated in the next overflow window
  int32_t truncation;     // gtc_truncation
  int32_t truncate_left;  // drop tokens at the start
  int32_t add_special_tokens;
  int32_t details;               // also offsets (in characters), word ids, sequence ids
  int32_t split_special_tokens;  // treat special tokens in the text as ordinary text
} gtc_encode_options;

typedef struct gtc_window {  // borrowed from gtc_encodings; the last three are NULL without
                             // `details`
  size_t length;
  const uint32_t* ids;
  const uint32_t* type_ids;
  const uint32_t* attention_mask;
  const uint32_t* special_tokens_mask;
  const uint64_t* offsets;      // 2 * length: begin, end
  const int64_t* word_ids;      // -1: none
  const int64_t* sequence_ids;  // -1: none
} gtc_window;

typedef struct gtc_rendered {  // released with gtc_rendered_free()
  gtc_text text;
  size_t* spans;  // 2 * span_count: begin and end of each generation block, in characters
  size_t span_count;
} gtc_rendered;

void gtc_string_free(char* text);
void gtc_text_free(gtc_text text);

// --- tokenizers; truncation and padding baked into the file are dropped (gtc_from_json tells them
// in `baked`, as JSON)
char* gtc_from_json(gtc_span json, gtc_tokenizer** out, gtc_text* baked);
void gtc_free(gtc_tokenizer* tokenizer);
char* gtc_to_json(const gtc_tokenizer* tokenizer, int32_t pretty, gtc_text* out);
// component: normalizer, pre_tokenizer, post_processor, decoder; `json` as in tokenizer.json,
// "null" removes it
char* gtc_set_component(gtc_tokenizer* tokenizer, gtc_span component, gtc_span json);
// the same JSON, "null" when there is none; component may also be "model_type" ("BPE", "WordPiece",
// "Unigram", "WordLevel")
char* gtc_get_component(const gtc_tokenizer* tokenizer, gtc_span component, gtc_text* out);
// json: [{"content", "single_word", "lstrip", "rstrip", "normalized", "special"}, ...]; added: how
// many were new
char* gtc_add_tokens(gtc_tokenizer* tokenizer, gtc_span json, size_t* added);
char* gtc_added_tokens(const gtc_tokenizer* tokenizer,
                       gtc_text* out);  // the same, with "id", by id
char* gtc_vocab(const gtc_tokenizer* tokenizer,
                gtc_text* out);  // {"token": id}, added tokens included
char* gtc_vocab_size(const gtc_tokenizer* tokenizer, int32_t with_added, size_t* out);
char* gtc_token_to_id(const gtc_tokenizer* tokenizer, gtc_span token, int64_t* out);  // -1: none
char* gtc_id_to_token(const gtc_tokenizer* tokenizer, uint32_t id,
                      gtc_text* out);  // data NULL: none
char* gtc_special_tokens_to_add(const gtc_tokenizer* tokenizer, int32_t pair, size_t* out);

// --- encode and decode; second may be NULL; threads 1 or more
char* gtc_encode(const gtc_tokenizer* tokenizer, const gtc_span* first, const gtc_span* second,
                 size_t count, const gtc_encode_options* options, size_t threads,
                 gtc_encodings** out);
// one input given as words; second may be NULL
char* gtc_encode_words(const gtc_tokenizer* tokenizer, const gtc_span* first, size_t first_count,
                       const gtc_span* second, size_t second_count,
                       const gtc_encode_options* options, gtc_encodings** out);
size_t gtc_window_count(const gtc_encodings* encodings, size_t input);  // 1 + overflow windows
void gtc_get_window(const gtc_encodings* encodings, size_t input, size_t window, gtc_window* out);
void gtc_encodings_free(gtc_encodings* encodings);
char* gtc_decode(const gtc_tokenizer* tokenizer, const uint32_t* ids, size_t count,
                 int32_t skip_special_tokens, gtc_text* out);

// --- training; options: {"kind": "bpe" | "wordpiece" | "unigram", "vocab_size", "min_frequency",
// "special_tokens", ...}
char* gtc_train(const gtc_span* files, size_t count, gtc_span options, gtc_tokenizer** out);

// --- chat templates; context: a JSON object with the template's variables
char* gtc_template_new(gtc_span source, gtc_template** out);
char* gtc_template_render(const gtc_template* tmpl, gtc_span context, int32_t want_spans,
                          gtc_rendered* out);
void gtc_template_free(gtc_template* tmpl);
void gtc_rendered_free(gtc_rendered rendered);

// --- regular expressions; whole: the expression has to match all of a text
char* gtc_regex_new(gtc_span pattern, int32_t whole, gtc_regex** out);
// out: first byte and end of the match, then of its groups, 2 * groups in all; SIZE_MAX: no match
char* gtc_regex_find(const gtc_regex* regex, gtc_span text, size_t groups, size_t* out,
                     int32_t* found);
void gtc_regex_free(gtc_regex* regex);

// --- characters, as Python's str knows them
char* gtc_lower(gtc_span text, gtc_text* out);
char* gtc_upper(gtc_span text, gtc_text* out);
// bits: 1 \w, 2 \d, 4 upper case, 8 lower case, 16 \w as Unicode defines it
uint32_t gtc_character_class(uint32_t code_point);

#ifdef __cplusplus
}
#endif
