#include "trainers/trl_options.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/models/peft_model.h>

namespace gradus {

void refuse_options(const std::string& message, const std::string& advice) {
  throw Error("G-TRL-1", ErrorKind::usage, message, advice);
}

void refuse_unused(std::initializer_list<UnusedMember> members, const std::string& who) {
  for (const auto& member : members)
    if (member.is_set)
      refuse_options(fmt::format("{} does not take {}", who, member.name),
                     "Leave it out, as in trl.");
}

std::shared_ptr<Tokenizer> trl_tokenizer(const std::shared_ptr<TokenizerLike>& given,
                                         const TokenizerSettings& settings,
                                         const std::string& who) {
  // Texts are made into tokens here, which TokenizerLike cannot do.
  auto tokenizer = std::dynamic_pointer_cast<Tokenizer>(given);
  if (!tokenizer)
    refuse_options(who + " needs a gradus::Tokenizer as processing_class",
                   "Load it with Tokenizer::from_pretrained.");
  if (settings.eos_token) tokenizer->set_special_token("eos_token", *settings.eos_token);
  if (settings.chat_template_path) {
    const std::filesystem::path path = *settings.chat_template_path;
    if (path.extension() != ".jinja" && path.extension() != ".j2")
      refuse_options(fmt::format("chat_template_path {} is not a .jinja file", path.string()),
                     "Give the file with the template.");
    tokenizer->set_chat_template(read_file(path));
  }
  auto pad = settings.pad_token;
  if (!pad) pad = tokenizer->special_token("pad_token");
  if (!pad) pad = tokenizer->special_token("eos_token");
  if (!pad) refuse_options("the tokenizer has no token to pad with", "Name one with --pad_token.");
  tokenizer->set_special_token("pad_token", *pad);
  return tokenizer;
}

std::shared_ptr<Model> policy_to_train(const std::shared_ptr<Model>& given,
                                       const std::optional<LoraConfig>& adapter,
                                       const std::string& who) {
  if (!given) refuse_options(who + " has no model", "Set `model`.");
  if (!given->shifts_labels())
    refuse_options(who + " trains causal language models only",
                   "Load the model with AutoModelForCausalLM.");
  return with_adapter(given, adapter);
}

std::shared_ptr<Model> with_adapter(const std::shared_ptr<Model>& given,
                                    const std::optional<LoraConfig>& adapter) {
  if (!adapter) return given;
  // Adapters hang on the layers of the library's models.
  const auto base = std::dynamic_pointer_cast<PreTrainedModel>(given);
  // A second adapter would train on top of the first one.
  const auto adapted = std::dynamic_pointer_cast<PeftModel>(given);
  if (!base || adapted)
    refuse_options(base ? "the model has an adapter already, and peft_config asks for another one"
                        : "peft_config needs a model of the library",
                   "Give a model without adapter, or leave peft_config out.");
  return get_peft_model(base, *adapter);
}

std::optional<int64_t> longest_input(const Model& model) {
  // Models of users do not say.
  const auto* known = dynamic_cast<const PreTrainedModel*>(&model);
  return known != nullptr ? known->position_limit() : std::nullopt;
}

std::optional<int64_t> known_tokens(const Model& model) {
  const auto config = model.config();  // null: a model of the user's own
  if (!config.is_object()) return std::nullopt;
  const auto count = config.find("vocab_size");
  if (count == config.end() || !count->is_number_integer()) return std::nullopt;
  return count->get<int64_t>();
}

}  // namespace gradus
