// tiny_models FOLDER: models and data small enough for a test of the program, made with gradus
// alone.
//
//   gpt2, llama, bert, t5   model folders with fresh weights and a tokenizer trained on the text
//   config.json             the GPT-2 configuration alone, with fewer ids than the tokenizer has
//   text.txt, text.jsonl    120 lines
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/models/auto_model.h>
#include <gradus/text/tokenizer.h>

#include <iostream>

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<std::string> lines() {
  const std::vector<std::string> who = {"The license", "A program", "The old cat",
                                        "Anna",        "The river", "Nobody"},
                                 does = {"grants you the right to", "does not have to", "may"},
                                 what = {"copy the work", "sleep all day", "flow to the sea",
                                         "change what is written"},
                                 how = {"without asking.", "in Berlin."};
  std::vector<std::string> all;
  for (const auto& a : who)
    for (const auto& b : does)
      for (const auto& c : what)
        for (const auto& d : how)
          if (all.size() < 120) all.push_back(a + " " + b + " " + c + " " + d);
  return all;
}

void save(gradus::ModelTask task, json config, const gradus::Tokenizer& tokenizer,
          const fs::path& folder) {
  config["vocab_size"] = tokenizer.full_vocab_size();
  for (const auto& [name, id] : {std::pair("pad_token_id", tokenizer.pad_token_id()),
                                 std::pair("eos_token_id", tokenizer.eos_token_id())})
    if (id) config[name] = *id;
  gradus::model_from_config(task, config)->save_pretrained(folder);
  tokenizer.save_pretrained(folder);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) return std::cerr << "usage: tiny_models FOLDER\n", 2;
  const fs::path folder = argv[1];
  gradus::make_directory(folder);
  std::string text, rows;
  for (const auto& line : lines()) {
    text += line + "\n";
    rows += gradus::dump_json(json{{"text", line}}) + "\n";
  }
  gradus::write_file_atomically(folder / "text.txt", text);
  gradus::write_file_atomically(folder / "text.jsonl", rows);
  torch::manual_seed(7);

  const auto bytes = gradus::Tokenizer::train_bpe({folder / "text.txt"}, {.vocab_size = 320});
  bytes->set_special_token("pad_token", "<|endoftext|>");
  bytes->set_model_max_length(64);
  const json gpt2 = {{"model_type", "gpt2"}, {"vocab_size", 100}, {"n_positions", 64},
                     {"n_embd", 32},         {"n_layer", 2},      {"n_head", 4},
                     {"resid_pdrop", 0.0},   {"embd_pdrop", 0.0}, {"attn_pdrop", 0.0}};
  gradus::write_file_atomically(folder / "config.json", gradus::dump_json(gpt2, 2));
  save(gradus::ModelTask::causal_lm, gpt2, *bytes, folder / "gpt2");
  const json small = {{"hidden_size", 32},
                      {"intermediate_size", 48},
                      {"num_hidden_layers", 2},
                      {"num_attention_heads", 4},
                      {"max_position_embeddings", 64}};
  auto llama = small;
  llama.update({{"model_type", "llama"}, {"num_key_value_heads", 2}});
  save(gradus::ModelTask::causal_lm, llama, *bytes, folder / "llama");

  const auto pieces = gradus::Tokenizer::train_wordpiece({folder / "text.txt"}, {.vocab_size = 90});
  pieces->set_model_max_length(64);
  auto bert = small;
  bert.update({{"model_type", "bert"},
               {"hidden_dropout_prob", 0.0},
               {"attention_probs_dropout_prob", 0.0}});
  save(gradus::ModelTask::masked_lm, bert, *pieces, folder / "bert");

  const auto words = gradus::Tokenizer::train_unigram({folder / "text.txt"}, {.vocab_size = 90});
  words->set_model_max_length(64);
  save(gradus::ModelTask::seq2seq_lm,
       {{"model_type", "t5"},
        {"d_model", 32},
        {"d_kv", 8},
        {"d_ff", 48},
        {"num_layers", 2},
        {"num_heads", 4},
        {"dropout_rate", 0.0},
        {"decoder_start_token_id", *words->pad_token_id()}},
       *words, folder / "t5");
} catch (const gradus::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
