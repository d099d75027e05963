// Answers tests/differential/tokenizer_test.py: one JSON document per line in, one per line out.
//   tokenizer_tool encode FOLDER          {"text", "pair"?, "options"?: {...}} -> {"windows":
//   [...], "decoded": [with, without special]} tokenizer_tool words FOLDER           {"words":
//   [...]} -> {"windows": [...]} tokenizer_tool chat FOLDER            {"template", "messages",
//   "options"?} -> {"text", "ids", "assistant_masks"} tokenizer_tool train KIND FILE FOLDER
//   VOCAB_SIZE tokenizer_tool resave FOLDER FOLDER
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/text/tokenizer.h>

#include <iostream>

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

json optionals(const std::vector<std::optional<int64_t>>& values) {
  auto list = json::array();
  for (const auto& value : values) list.push_back(value ? json(*value) : json());
  return list;
}

json window(const gradus::Encoding& encoding) {
  return {{"ids", encoding.ids()},
          {"type_ids", encoding.type_ids()},
          {"attention_mask", encoding.attention_mask()},
          {"special_tokens_mask", encoding.special_tokens_mask()},
          {"offsets", encoding.offsets()},
          {"word_ids", optionals(encoding.word_ids())},
          {"sequence_ids", optionals(encoding.sequence_ids())}};
}

json windows(const gradus::Encoding& encoding) {
  auto list = json::array({window(encoding)});
  for (const auto& more : encoding.overflowing()) list.push_back(window(more));
  return list;
}

gradus::EncodeOptions encode_options(const json& request) {
  gradus::EncodeOptions options;
  const auto given = request.value("options", json::object());
  if (given.contains("max_length")) options.max_length = given["max_length"].get<int64_t>();
  if (given.contains("truncation")) {
    options.truncation = given["truncation"].is_boolean()
                             ? gradus::Truncation(given["truncation"].get<bool>())
                             : gradus::Truncation(given["truncation"].get<std::string>());
  }
  if (request.contains("pair")) options.text_pair = request["pair"].get<std::string>();
  options.add_special_tokens = given.value("add_special_tokens", true);
  options.stride = given.value("stride", int64_t{0});
  options.return_overflowing_tokens = given.value("return_overflowing_tokens", false);
  if (given.contains("padding"))
    options.padding = gradus::Padding(given["padding"].get<std::string>());
  return options;
}

json encode(const gradus::Tokenizer& tokenizer, const json& request) {
  const auto encoding =
      tokenizer.encode(request["text"].get<std::string>(), encode_options(request));
  return {{"windows", windows(encoding)},
          {"columns", encoding.example().names()},
          {"decoded",
           {tokenizer.decode(encoding.ids()),
            tokenizer.decode(encoding.ids(), {.skip_special_tokens = true})}}};
}

json words(const gradus::Tokenizer& tokenizer, const json& request) {
  return {
      {"windows", windows(tokenizer.encode_words(request["words"].get<std::vector<std::string>>(),
                                                 encode_options(request)))}};
}

json chat(const gradus::Tokenizer& tokenizer, const ordered_json& request) {
  gradus::ChatOptions options;
  const auto given = request.value("options", ordered_json::object());
  options.add_generation_prompt = given.value("add_generation_prompt", false);
  options.continue_final_message = given.value("continue_final_message", false);
  options.tools = given.value("tools", ordered_json());
  options.documents = given.value("documents", ordered_json());
  options.variables = given.value("variables", ordered_json::object());
  options.chat_template = request["template"].get<std::string>();
  json answer = {{"text", tokenizer.render_chat(request["messages"], options)}};
  options.return_assistant_tokens_mask = given.value("mask", false);
  const auto encoding = tokenizer.apply_chat_template(request["messages"], options);
  answer["ids"] = encoding.ids();
  answer["assistant_masks"] = encoding.assistant_masks();
  return answer;
}

template <class Json, class F>
void answer_lines(F answer) {
  for (std::string line; std::getline(std::cin, line);) {
    json reply;
    try {
      if constexpr (std::is_same_v<Json, ordered_json>)
        reply = answer(ordered_json::parse(line));
      else
        reply = answer(gradus::parse_json(line));
    } catch (const gradus::Error& error) {
      reply = {{"error", error.message()}, {"id", error.id()}};
    }
    std::cout << reply.dump() << '\n';
  }
}

int run(const std::vector<std::string>& words_of_command) {
  const auto& command = words_of_command.at(0);
  if (command == "train") {
    const std::vector<std::filesystem::path> files = {words_of_command.at(2)};
    const gradus::TokenizerTraining training = {.vocab_size = std::stoll(words_of_command.at(4))};
    const auto& kind = words_of_command.at(1);
    const auto tokenizer = kind == "bpe" ? gradus::Tokenizer::train_bpe(files, training)
                           : kind == "unigram"
                               ? gradus::Tokenizer::train_unigram(files, training)
                               : gradus::Tokenizer::train_wordpiece(files, training);
    tokenizer->save_pretrained(words_of_command.at(3));
    return 0;
  }
  const auto tokenizer = gradus::Tokenizer::from_pretrained(words_of_command.at(1));
  if (command == "resave")
    tokenizer->save_pretrained(words_of_command.at(2));
  else if (command == "encode")
    answer_lines<json>([&](const json& request) { return encode(*tokenizer, request); });
  else if (command == "words")
    answer_lines<json>([&](const json& request) { return words(*tokenizer, request); });
  else if (command == "chat")
    answer_lines<ordered_json>(
        [&](const ordered_json& request) { return chat(*tokenizer, request); });
  else
    return 2;
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  return run({argv + 1, argv + argc});
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
