#include <fmt/format.h>
#include <gradus/config/option_set.h>
#include <gradus/core/error.h>
#include <gradus/core/nearest.h>

#include <algorithm>

#include "config/field_value.h"
#include "config/hidden_tokens.h"
#include "config/removed_names.h"

namespace gradus {
namespace {

bool is_config_file(const std::string& word) {
  const auto suffix = std::filesystem::path(word).extension();
  return suffix == ".yaml" || suffix == ".yml" || suffix == ".json";
}

// "--x" or "-x"; a negative number is a value
bool is_flag(const std::string& word) {
  if (word.size() > 2 && word.starts_with("--")) return true;
  return word.size() > 1 && word[0] == '-' && std::isalpha(static_cast<unsigned char>(word[1])) &&
         word != "-inf" && word != "-nan";
}

std::string with_underscores(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace

void OptionSet::add(OptionTypes::Reference field, std::string_view name, Group group,
                    const Rule& rule, std::string_view help, Origin origin) {
  if (find(name) != nullptr)
    throw Error("G-CONF-9", ErrorKind::internal, fmt::format("two options are called {}", name),
                "Give one of the struct members another name.");
  options_.push_back({field, name, group, rule, help, origin, config::field_to_json(field)});
}

const OptionSet::Option* OptionSet::find(std::string_view name) const {
  for (const auto& option : options_)
    if (option.name == name) return &option;
  return nullptr;
}

void OptionSet::throw_unknown(const std::string& name, const std::string& where) const {
  if (const auto removed = config::find_removed(with_underscores(name));
      removed && find(removed->successor) != nullptr)
    throw Error("G-CONF-1", ErrorKind::usage, where + ", which transformers 5 has removed",
                std::string(removed->advice));
  std::vector<std::string> names;
  for (const auto& option : options_) names.emplace_back(option.name);
  const auto hint = did_you_mean(name.starts_with("no_") ? name.substr(3) : name, names);
  throw Error("G-CONF-1", ErrorKind::usage, where,
              hint.empty() ? "--help lists every option." : hint + " --help lists every option.");
}

const OptionSet::Option& OptionSet::find_flag(const std::string& flag, bool& negated) const {
  const auto name = with_underscores(flag.substr(flag.starts_with("--") ? 2 : 1));
  negated = false;
  if (flag.starts_with("--")) {
    if (const auto* option = find(name)) return *option;
    if (name.starts_with("no_")) {
      const auto* option = find(name.substr(3));
      negated = true;
      if (option != nullptr && config::is_boolean(option->field)) return *option;
      if (option != nullptr)
        throw Error("G-CONF-7", ErrorKind::usage,
                    fmt::format("{} negates --{}, which is not a switch but takes {}", flag,
                                option->name, config::field_type(option->field, option->rule)),
                    fmt::format("Leave the flag out, or give a value: --{} VALUE.", option->name));
    }
  }
  throw_unknown(name, fmt::format("unknown option {}", flag));
}

std::vector<std::string> OptionSet::take_words(const Option& option,
                                               std::span<const std::string> words,
                                               size_t& next) const {
  const auto has_value = [&] { return next < words.size() && !is_flag(words[next]); };
  std::vector<std::string> taken;
  if (config::is_boolean(option.field)) {
    const bool value =
        has_value() && (config::boolean_word(words[next]) || !is_config_file(words[next]));
    if (value) taken.push_back(words[next++]);
  } else if (config::is_list(option.field)) {
    while (has_value()) taken.push_back(words[next++]);
  } else if (has_value()) {
    taken.push_back(words[next++]);
  }
  return taken;
}

OptionSet::Line OptionSet::parse(std::span<const std::string> words) {
  if (std::any_of(words.begin(), words.end(),
                  [](const auto& word) { return word == "--help" || word == "-h"; }))
    return {.help = true};
  struct Given {
    const Option* option;
    std::string flag;
    std::vector<std::string> words;
  };
  std::vector<Given> given;
  Line line;
  const auto take_file = [&](const std::string& word) {
    if (!is_config_file(word) || line.file)
      throw Error(
          "G-CONF-7", ErrorKind::usage,
          fmt::format("unexpected word \"{}\"{}", word,
                      line.file ? ": there is already a config file" : ""),
          find(with_underscores(word.substr(0, word.find('=')))) != nullptr
              ? "Options begin with two dashes: --" + word
              : "A config file ends in .yaml, .yml or .json; everything else is --option value.");
    line.file = word;
  };
  for (size_t next = 0; next < words.size();) {
    const auto& word = words[next++];
    if (!is_flag(word)) {
      take_file(word);
      continue;
    }
    const auto equals = word.find('=');
    if (word.substr(0, equals) == "--config" && find("config") == nullptr) {
      if (equals != std::string::npos)
        take_file(word.substr(equals + 1));
      else
        take_file(next < words.size() ? words[next++] : "");
      continue;
    }
    bool negated = false;
    const auto& option = find_flag(word.substr(0, equals), negated);
    if (negated && equals != std::string::npos)
      throw Error("G-CONF-7", ErrorKind::usage,
                  fmt::format("{} takes no value", word.substr(0, equals)),
                  fmt::format("Use --{} true or --{} false.", option.name, option.name));
    auto values = negated                       ? std::vector<std::string>{"false"}
                  : equals != std::string::npos ? std::vector<std::string>{word.substr(equals + 1)}
                                                : take_words(option, words, next);
    given.push_back({&option, fmt::format("--{}", option.name), std::move(values)});
  }
  if (line.file) read_file(*line.file);
  for (const auto& [option, flag, values] : given) {
    const config::FieldContext context{option->rule, flag, option->help};
    config::field_from_words(option->field, values, context);
    config::check_field(option->field, context);
    set_.emplace(option->name);
  }
  return line;
}

void OptionSet::assign(const Option& option, const nlohmann::json& value,
                       const std::string& where) {
  const config::FieldContext context{option.rule, where, option.help};
  // Only that: `<|im_end|>` is a token of a tokenizer.
  const auto hidden_form = config::hidden_form(option.name);
  const bool hidden = !hidden_form.empty() && value == hidden_form;
  config::field_from_json(option.field, hidden ? nlohmann::json(nullptr) : value, context);
  config::check_field(option.field, context);
  set_.emplace(option.name);
}

void OptionSet::read_dict(const nlohmann::json& dict, const std::string& where) {
  if (!dict.is_object())
    throw Error("G-CONF-6", ErrorKind::usage,
                fmt::format("{} holds {}, expected an object with one option per key", where,
                            dict.type_name()));
  for (const auto& [key, value] : dict.items()) {
    const auto* option = find(with_underscores(key));
    if (option == nullptr) throw_unknown(key, fmt::format("{}: unknown option {}", where, key));
    assign(*option, value, fmt::format("{}: {}", where, key));
  }
}

void OptionSet::check() const {
  for (const auto& option : options_)
    config::check_field(option.field, {option.rule, std::string(option.name), option.help});
}

nlohmann::ordered_json OptionSet::values() const {
  auto values = nlohmann::ordered_json::object();
  for (const auto& option : options_)
    values[std::string(option.name)] = config::field_to_json(option.field);
  return values;
}

std::vector<Group> OptionSet::groups() const {
  std::vector<Group> groups;
  for (const auto& option : options_)
    if (std::find(groups.begin(), groups.end(), option.group) == groups.end())
      groups.push_back(option.group);
  std::sort(groups.begin(), groups.end());
  return groups;
}

}  // namespace gradus
