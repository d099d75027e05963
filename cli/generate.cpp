// generate: text from a language model's folder.
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/device/runtime.h>
#include <gradus/models/auto_model.h>
#include <gradus/models/peft_model.h>
#include <gradus/models/text_streamer.h>
#include <gradus/text/tokenizer.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <iostream>

#include "cli.h"
#include "generate_flags.h"
#include "prompts.h"

namespace gradus::cli {
namespace {

constexpr const char* kUsage =
    "usage: gradus generate --model_name_or_path DIR (--prompt TEXT… | --prompt_file F | --chat) "
    "[--flags]";

std::atomic<int> g_generate_signal = 0;

/// SIGINT and SIGTERM end the generation after the token, and also the wait for a line of stdin (no
/// SA_RESTART).
void stop_on_signals() {
  struct sigaction action = {};
  action.sa_handler = [](int signal) { g_generate_signal = signal; };
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction before{};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
}

/// A text that was made, and from what.
struct Generation {
  Prompt prompt;
  std::string text;
  int64_t tokens = 0;

  nlohmann::ordered_json to_json() const {
    nlohmann::ordered_json row;
    if (prompt.messages.is_null())
      row["prompt"] = prompt.text;
    else
      row["messages"] = prompt.messages;
    row["generated_text"] = text;
    row["tokens"] = tokens;
    return row;
  }
};

/// Model and tokenizer of a folder, with the options of the command.
class Generator {
 public:
  explicit Generator(GenerateFlags flags) : flags_(std::move(flags)) {
    const std::filesystem::path folder = expand_user(*flags_.model_name_or_path);
    const auto task = task_for(folder);
    tokenizer_ = Tokenizer::from_pretrained(tokenizer_folder(folder));
    PretrainedOptions load;
    load.device = device::pick_device(flags_.use_cpu, 0);
    if (flags_.dtype && *flags_.dtype != "auto") load.dtype = dtype_named(*flags_.dtype);
    model_ = model_from_pretrained(task, folder, load);
    flags_.generation.decode = [tokenizer = tokenizer_](const std::vector<int64_t>& ids) {
      return tokenizer->decode(ids);
    };
    flags_.generation.stopping_criteria = {
        [](std::span<const int64_t>) { return g_generate_signal != 0; }};
    const auto options = complete_options(flags_.generation, model_->generation_config.options);
    if (options.eos_token_id) ends_ = options.eos_token_id->ids();
    pad_ = options.pad_token_id
               ? *options.pad_token_id
               : tokenizer_->pad_token_id().value_or(ends_.empty() ? 0 : ends_.front());
    texts_per_prompt_ = *options.num_return_sequences;
    can_stream_ = *options.num_beams == 1 && texts_per_prompt_ == 1;
  }

  bool can_stream() const { return can_stream_; }

  std::vector<int64_t> encode(const Prompt& prompt) const {
    if (!prompt.messages.is_null()) {
      ChatOptions options;
      options.add_generation_prompt = true;
      return tokenizer_->apply_chat_template(prompt.messages, options).ids();
    }
    EncodeOptions options;
    options.add_special_tokens = flags_.add_special_tokens;
    options.truncation = false;
    auto ids = tokenizer_->encode(prompt.text, options).ids();
    if (ids.empty())
      throw Error("G-CLI-6", ErrorKind::data, fmt::format("{} has no tokens", prompt.where),
                  "Give a text the tokenizer knows, or leave --add_special_tokens on.");
    return ids;
  }

  /// The texts of some prompts, generated together: padded on the left, for an encoder on the
  /// right.
  std::vector<Generation> run(std::span<const Prompt> prompts) {
    std::vector<std::vector<int64_t>> rows;
    for (const auto& prompt : prompts) rows.push_back(encode(prompt));
    const bool left = !model_->is_encoder_decoder();
    const auto made = model_->generate(padded(rows, left), flags_.generation).to(torch::kCPU);
    const auto begin =
        left ? std::max_element(rows.begin(), rows.end(),
                                [](const auto& a, const auto& b) { return a.size() < b.size(); })
                   ->size()
             : 1;
    std::vector<Generation> generations;
    for (int64_t i = 0; i < made.size(0); ++i) {
      const auto& prompt = prompts[static_cast<size_t>(i / texts_per_prompt_)];
      const auto ids = cut(made[i], static_cast<int64_t>(begin));
      generations.push_back({prompt, text_of(rows[static_cast<size_t>(i / texts_per_prompt_)], ids),
                             static_cast<int64_t>(ids.size())});
    }
    return generations;
  }

  /// One prompt, its text handed to `write` as it is produced.
  Generation stream(const Prompt& prompt, const std::function<void(std::string_view)>& write) {
    const auto ids = encode(prompt);
    TextStreamer streamer([this](const auto& some) { return decode(some); }, write,
                          !flags_.return_full_text || model_->is_encoder_decoder());
    auto options = flags_.generation;
    options.streamer = [&](std::span<const int64_t> some) { streamer.put(some); };
    const auto made = model_->generate(padded({ids}, true), options).to(torch::kCPU);
    streamer.end();
    const auto fresh =
        cut(made[0], model_->is_encoder_decoder() ? 1 : static_cast<int64_t>(ids.size()));
    return {prompt, text_of(ids, fresh), static_cast<int64_t>(fresh.size())};
  }

 private:
  /// An adapter's folder may lack a tokenizer; its base model has one.
  std::filesystem::path tokenizer_folder(const std::filesystem::path& folder) const {
    if (flags_.tokenizer_name) return expand_user(*flags_.tokenizer_name);
    if (std::filesystem::exists(folder / "tokenizer.json")) return folder;
    return base_of_adapter(folder).value_or(folder);
  }

  static ModelTask task_for(const std::filesystem::path& folder) {
    const auto file = base_of_adapter(folder).value_or(folder) / "config.json";
    if (!std::filesystem::exists(file))
      static_cast<void>(
          model_from_pretrained(ModelTask::causal_lm, folder));  // throws and says what is missing
    const auto config = read_json(file);
    if (!config.is_object()) return ModelTask::causal_lm;
    for (const auto* head : {"ForSequenceClassification", "ForTokenClassification",
                             "ForQuestionAnswering", "ForMaskedLM"})
      for (const auto& name : config.value("architectures", nlohmann::json::array()))
        if (name.is_string() && name.get<std::string>().ends_with(head))
          throw Error("G-CLI-7", ErrorKind::model,
                      fmt::format("{} holds a {}, which cannot generate text", folder.string(),
                                  name.get<std::string>()),
                      "Give the folder of a causal or sequence-to-sequence language model; `gradus "
                      "predict` runs other heads.");
    const auto type = config.value("model_type", nlohmann::json());
    const auto has = [&](ModelTask task) {
      const auto known = known_model_types(task);
      return type.is_string() &&
             std::find(known.begin(), known.end(), type.get<std::string>()) != known.end();
    };
    return has(ModelTask::seq2seq_lm) && !has(ModelTask::causal_lm) ? ModelTask::seq2seq_lm
                                                                    : ModelTask::causal_lm;
  }

  std::string decode(const std::vector<int64_t>& ids) const {
    return tokenizer_->decode(ids, {.skip_special_tokens = flags_.skip_special_tokens});
  }

  std::string text_of(std::vector<int64_t> prompt_ids, const std::vector<int64_t>& ids) const {
    if (!flags_.return_full_text || model_->is_encoder_decoder()) return decode(ids);
    prompt_ids.insert(prompt_ids.end(), ids.begin(), ids.end());
    return decode(prompt_ids);
  }

  Batch padded(const std::vector<std::vector<int64_t>>& rows, bool left) const {
    size_t width = 0;
    for (const auto& row : rows) width = std::max(width, row.size());
    const auto shape =
        std::vector<int64_t>{static_cast<int64_t>(rows.size()), static_cast<int64_t>(width)};
    auto ids = torch::full(shape, pad_, torch::kLong), mask = torch::zeros(shape, torch::kLong);
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto length = static_cast<int64_t>(rows[i].size()),
                 start = left ? shape[1] - length : 0;
      const auto place = static_cast<int64_t>(i);
      ids[place].narrow(0, start, length).copy_(torch::tensor(rows[i], torch::kLong));
      mask[place].narrow(0, start, length).fill_(1);
    }
    return {{"input_ids", ids}, {"attention_mask", mask}};
  }

  /// The new tokens of a row: up to its end token, without what fills it up.
  std::vector<int64_t> cut(const torch::Tensor& row, int64_t begin) const {
    const auto values = row.contiguous();
    std::vector<int64_t> ids(values.const_data_ptr<int64_t>() + begin,
                             values.const_data_ptr<int64_t>() + values.numel());
    const auto end = std::find_first_of(ids.begin(), ids.end(), ends_.begin(), ends_.end());
    if (end != ids.end())
      ids.erase(end + 1, ids.end());
    else if (!ends_.empty())  // ended by a stop string, then filled up
      while (!ids.empty() && ids.back() == pad_) ids.pop_back();
    return ids;
  }

  GenerateFlags flags_;
  std::shared_ptr<Tokenizer> tokenizer_;
  std::shared_ptr<PreTrainedModel> model_;
  int64_t pad_ = 0, texts_per_prompt_ = 1;
  std::vector<int64_t> ends_;
  bool can_stream_ = false;
};

void print_piece(std::string_view text) { print_text(std::string(text)); }

/// A conversation: every line of stdin is a turn of the user's. Ends with the input.
std::vector<Generation> converse(Generator& generator, const GenerateFlags& flags, bool streaming) {
  std::vector<Generation> turns;
  Prompt prompt;
  prompt.messages = chat_of({}, flags.system);
  const bool terminal = isatty(STDIN_FILENO) != 0;
  std::string line;
  while (g_generate_signal == 0) {
    if (terminal) log_print("> ");
    if (!std::getline(std::cin, line)) break;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    prompt.messages.push_back({{"role", "user"}, {"content", line}});
    auto turn =
        streaming ? generator.stream(prompt, print_piece) : generator.run({&prompt, 1}).front();
    if (!flags.json) print_line(streaming ? "" : turn.text);
    prompt.messages.push_back({{"role", "assistant"}, {"content", turn.text}});
    turns.push_back(std::move(turn));
  }
  return turns;
}

void write_files(const GenerateFlags& flags, const std::vector<Generation>& generations) {
  std::string rows, lines;
  for (const auto& one : generations) {
    rows += dump_json(one.to_json()) + "\n";
    lines += one.text + "\n";
  }
  if (flags.output_file) {
    const auto file = expand_user(*flags.output_file);
    if (file.has_parent_path()) make_directory(file.parent_path());
    write_named_file(file, rows);
  }
  if (flags.output_dir) {
    const auto folder = expand_user(*flags.output_dir);
    make_directory(folder);
    write_file_atomically(folder / "generations.jsonl", rows);
    write_file_atomically(folder / "generated_predictions.txt", lines);
  }
}

std::vector<Generation> run_prompts(Generator& generator, const GenerateFlags& flags,
                                    const std::vector<Prompt>& prompts, bool streaming) {
  std::vector<Generation> generations;
  const auto shown = [&](const Generation& one) {
    if (!flags.json && prompts.size() > 1) print_line(fmt::format("> {}", one.prompt.title()));
    if (!flags.json) print_line(one.text);
  };
  for (size_t i = 0; i < prompts.size() && g_generate_signal == 0;
       i += static_cast<size_t>(flags.batch_size)) {
    if (streaming) {
      generations.push_back(generator.stream(prompts[i], print_piece));
      print_line("");
      continue;
    }
    const auto count = std::min(prompts.size() - i, static_cast<size_t>(flags.batch_size));
    for (auto& one : generator.run(std::span(prompts).subspan(i, count))) {
      shown(one);
      generations.push_back(std::move(one));
    }
  }
  return generations;
}

nlohmann::ordered_json document_of(const GenerateFlags& flags,
                                   const std::vector<Generation>& generations, double seconds) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  int64_t tokens = 0;
  for (const auto& one : generations) {
    rows.push_back(one.to_json());
    tokens += one.tokens;
  }
  return {{"model_name_or_path", *flags.model_name_or_path},
          {"generations", rows},
          {"tokens", tokens},
          {"seconds", seconds}};
}

}  // namespace

int generate(Words words) {
  const auto parsed = parse_generate_flags(words);
  if (!parsed) {
    print_line(generate_help());
    return 0;
  }
  const auto& flags = *parsed;
  if (!flags.model_name_or_path)
    throw Error("G-CLI-4", ErrorKind::usage, "gradus generate needs --model_name_or_path", kUsage);
  const auto prompts = read_prompts(flags);
  if (flags.system && std::any_of(prompts.begin(), prompts.end(),
                                  [](const Prompt& prompt) { return prompt.messages.is_null(); }))
    throw Error("G-CLI-4", ErrorKind::usage,
                "--system is a message of a chat, and a prompt is plain text without --chat",
                "Add --chat, or put the text into the prompt.");
  const bool conversation = prompts.empty() && flags.chat && !flags.prompt_file;
  if (prompts.empty() && !conversation)
    throw Error("G-CLI-4", ErrorKind::usage, "gradus generate has no prompt",
                "Give --prompt TEXT, --prompt_file F, or --chat for a conversation.\n" +
                    std::string(kUsage));
  Generator generator(flags);
  device::seed_all(flags.seed);
  stop_on_signals();
  const bool wanted = flags.stream.value_or(isatty(STDOUT_FILENO) != 0);
  const bool streaming =
      wanted && !flags.json && generator.can_stream() && (conversation || prompts.size() == 1);
  const auto start = std::chrono::steady_clock::now();
  const auto generations = conversation ? converse(generator, flags, streaming)
                                        : run_prompts(generator, flags, prompts, streaming);
  write_files(flags, generations);
  if (flags.json)
    print_line(dump_json(
        document_of(
            flags, generations,
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()),
        2));
  return g_generate_signal == 0 ? 0 : 128 + g_generate_signal;
}

}  // namespace gradus::cli
