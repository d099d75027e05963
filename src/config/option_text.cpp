#include <fmt/format.h>
#include <gradus/config/option_set.h>
#include <gradus/core/json.h>

#include "config/field_value.h"

// What people and tools read about options: --help, the options page, the JSON list.
namespace gradus {
namespace {

constexpr size_t kNameColumn = 34;

std::string plain_text(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : dump_json(value);
}

std::string metavar(const OptionTypes::Reference& field, const Rule& rule) {
  if (config::is_boolean(field)) return "[true|false]";
  if (rule.shape == Shape::dictionary_or_path) return "JSON|FILE";
  if (rule.shape == Shape::dictionary) return "JSON";
  if (config::is_list(field)) return "WORD...";
  const auto type = config::field_type(field, {});
  return type.starts_with("int") ? "INT" : type.starts_with("float") ? "NUMBER" : "TEXT";
}

std::string choices_text(const Rule& rule) {
  std::string text;
  for (const auto& choice : rule.choices()) text.append(text.empty() ? "" : ", ").append(choice);
  return text;
}

// Appends `text` wrapped to `width`, every line after `indent` spaces; the first line begins at the
// current column.
void append_wrapped(std::string& out, std::string_view text, size_t indent, size_t width) {
  size_t column = indent;
  while (!text.empty()) {
    const auto end = std::min(text.find(' '), text.size());
    const auto word = text.substr(0, end);
    if (column > indent && column + 1 + word.size() > width) {
      out.append("\n").append(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  out += '\n';
}

std::string escape_table(std::string text) {
  for (size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2))
    text.insert(at, "\\");
  return text;
}

}  // namespace

std::vector<std::string> Rule::choices() const {
  if (table != nullptr) return table();
  return {words.begin(), words.end()};
}

std::string_view group_title(Group group) {
  switch (group) {
    case Group::task: return "Task";
    case Group::model: return "Model";
    case Group::data: return "Data";
    case Group::generation: return "Generation";
    case Group::trainer: return "Trainer";
    case Group::output: return "Output";
    case Group::duration: return "Training duration and batch size";
    case Group::schedule: return "Learning rate and schedule";
    case Group::optimizer: return "Optimizer";
    case Group::regularization: return "Regularization and training stability";
    case Group::precision: return "Mixed precision";
    case Group::gradient_checkpointing: return "Gradient checkpointing";
    case Group::compilation: return "Compilation";
    case Group::kernels: return "Kernels";
    case Group::optimizations: return "Additional optimizations";
    case Group::logging: return "Logging and monitoring";
    case Group::log_levels: return "Log levels";
    case Group::tracking: return "Experiment tracking";
    case Group::evaluation: return "Evaluation";
    case Group::metrics: return "Metrics";
    case Group::checkpoints: return "Checkpointing and saving";
    case Group::hub: return "Hub integration";
    case Group::best_model: return "Best model tracking";
    case Group::resuming: return "Resuming training";
    case Group::reproducibility: return "Reproducibility";
    case Group::hardware: return "Hardware";
    case Group::accelerate: return "Accelerate";
    case Group::dataloader: return "Data loading";
    case Group::ddp: return "Several processes";
    case Group::fsdp: return "FSDP";
    case Group::deepspeed: return "DeepSpeed";
    case Group::debugging: return "Debugging";
    case Group::scripts: return "What to do";
    case Group::gradus: return "Options of gradus";
    case Group::program: return "Program";
  }
  return "Other";
}

std::string OptionSet::help(int width) const {
  std::string out;
  for (const auto group : groups()) {
    out.append(out.empty() ? "" : "\n").append(group_title(group)).append(":\n");
    for (const auto& option : options_) {
      if (option.group != group) continue;
      const auto name = fmt::format("  --{} {}", option.name, metavar(option.field, option.rule));
      out += name;
      if (name.size() + 2 > kNameColumn)
        out.append("\n").append(kNameColumn, ' ');
      else
        out.append(kNameColumn - name.size(), ' ');
      std::string text(option.help);
      if (const auto choices = choices_text(option.rule); !choices.empty())
        text += " One of: " + choices + ".";
      if (!option.default_value.is_null() && option.default_value != "")
        text += " (default: " + plain_text(option.default_value) + ")";
      append_wrapped(out, text, kNameColumn, size_t(width));
    }
  }
  return out;
}

nlohmann::ordered_json OptionSet::describe() const {
  auto list = nlohmann::ordered_json::array();
  for (const auto& option : options_) {
    nlohmann::ordered_json choices = nullptr;
    if (auto words = option.rule.choices(); !words.empty()) choices = std::move(words);
    list.push_back({{"name", option.name},
                    {"type", config::field_type(option.field, option.rule)},
                    {"default", option.default_value},
                    {"choices", choices},
                    {"group", group_title(option.group)},
                    {"help", option.help},
                    {"origin", option.origin == Origin::transformers ? "hf" : "gradus"}});
  }
  return list;
}

std::string OptionSet::markdown() const {
  std::string out;
  for (const auto group : groups()) {
    out += fmt::format("\n## {}\n\n| option | type | default | meaning |\n|---|---|---|---|\n",
                       group_title(group));
    for (const auto& option : options_) {
      if (option.group != group) continue;
      const auto shown = plain_text(option.default_value);
      const auto default_text = option.default_value.is_null() ? "not set"
                                : shown.empty()                ? "empty"
                                                               : "`" + shown + "`";
      std::string meaning(option.help);
      if (const auto choices = choices_text(option.rule); !choices.empty())
        meaning += " One of: " + choices + ".";
      out += fmt::format("| `{}` | {} | {} | {} |\n", option.name,
                         escape_table(config::field_type(option.field, option.rule)), default_text,
                         escape_table(meaning));
    }
  }
  return out;
}

}  // namespace gradus
