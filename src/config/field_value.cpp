#include "config/field_value.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/nearest.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace gradus::config {
namespace {

using Words = std::vector<std::string>;
using Numbers = std::vector<double>;
using nlohmann::json;

template <class T>
constexpr bool kIsOptional = false;
template <class T>
constexpr bool kIsOptional<std::optional<T>> = true;

template <class T>
std::string expected(const Rule& rule) {
  if constexpr (std::is_same_v<T, bool>)
    return "true or false";
  else if constexpr (std::is_same_v<T, int64_t>)
    return "an integer";
  else if constexpr (std::is_same_v<T, double>)
    return "a number";
  else if constexpr (std::is_same_v<T, StepsOrRatio>)
    return "a number of steps or a ratio below 1";
  else if constexpr (std::is_same_v<T, std::string>)
    return rule.when_true.empty() ? "text" : "text, true or false";
  else if constexpr (std::is_same_v<T, StringOrList>)
    return "a word or a list of words";
  else if constexpr (std::is_same_v<T, Words>)
    return "a list of words";
  else if constexpr (std::is_same_v<T, Numbers>)
    return "a list of numbers";
  else if (rule.shape == Shape::dictionary_or_path)
    return R"(a dictionary such as {"key": 1}, or the path of a JSON file)";
  else if (rule.shape == Shape::text_or_false)
    return "text or false";
  else
    return R"(a dictionary such as {"key": 1})";
}

template <class T>
[[noreturn]] void throw_type(const FieldContext& context, const std::string& received) {
  throw Error("G-CONF-2", ErrorKind::usage,
              fmt::format("{}: expected {}, received {}", context.where, expected<T>(context.rule),
                          received),
              std::string(context.help));
}

// ---- text to value; nullopt: not of this type

template <class Number>
std::optional<Number> number_from(std::string_view word) {
  if (word.starts_with('+')) word.remove_prefix(1);
  Number value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (word.empty() || error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

std::optional<bool> parse(std::type_identity<bool>, const std::string& word, const Rule&) {
  return boolean_word(word);
}
std::optional<int64_t> parse(std::type_identity<int64_t>, const std::string& word, const Rule&) {
  return number_from<int64_t>(word);
}
std::optional<double> parse(std::type_identity<double>, const std::string& word, const Rule&) {
  return number_from<double>(word);
}
std::optional<StepsOrRatio> parse(std::type_identity<StepsOrRatio>, const std::string& word,
                                  const Rule&) {
  if (const auto steps = number_from<int64_t>(word)) return StepsOrRatio(*steps);
  if (const auto ratio = number_from<double>(word)) return StepsOrRatio(*ratio);
  return std::nullopt;
}
std::optional<std::string> parse(std::type_identity<std::string>, const std::string& word,
                                 const Rule& rule) {
  if (rule.when_true.empty()) return word;
  std::string lower = word;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  if (lower == "true") return std::string(rule.when_true);
  if (lower == "false") return std::string(rule.when_false);
  return word;
}

std::optional<json> parse(std::type_identity<json>, const std::string& word, const Rule& rule) {
  if (word.starts_with('{')) {
    auto value = parse_json(word, "the dictionary");
    convert_strings(value);
    return value;
  }
  if (word == "null" || word == "none") return json(nullptr);
  if (rule.shape == Shape::dictionary_or_path) return json(word);
  if (rule.shape == Shape::text_or_false)
    return boolean_word(word) == false ? json(false) : json(word);
  return std::nullopt;
}

// ---- JSON to value; nullopt: not of this type

std::optional<bool> convert(std::type_identity<bool>, const json& value, const Rule&) {
  return value.is_boolean() ? std::optional(value.get<bool>()) : std::nullopt;
}
std::optional<int64_t> convert(std::type_identity<int64_t>, const json& value, const Rule&) {
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max()))
    return std::nullopt;
  return value.is_number_integer() ? std::optional(value.get<int64_t>()) : std::nullopt;
}
std::optional<double> convert(std::type_identity<double>, const json& value, const Rule&) {
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}
std::optional<StepsOrRatio> convert(std::type_identity<StepsOrRatio>, const json& value,
                                    const Rule& rule) {
  if (const auto steps = convert(std::type_identity<int64_t>(), value, rule))
    return StepsOrRatio(*steps);
  return value.is_number() ? std::optional(StepsOrRatio(value.get<double>())) : std::nullopt;
}
std::optional<std::string> convert(std::type_identity<std::string>, const json& value,
                                   const Rule& rule) {
  if (value.is_boolean() && !rule.when_true.empty())
    return std::string(value.get<bool>() ? rule.when_true : rule.when_false);
  return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
}
// A single one is a list of one, as on the command line.
std::optional<Words> convert(std::type_identity<Words>, const json& value, const Rule&) {
  if (value.is_string()) return Words{value.get<std::string>()};
  if (!value.is_array() ||
      !std::all_of(value.begin(), value.end(), [](const json& each) { return each.is_string(); }))
    return std::nullopt;
  return value.get<Words>();
}
std::optional<Numbers> convert(std::type_identity<Numbers>, const json& value, const Rule&) {
  if (value.is_number()) return Numbers{value.get<double>()};
  if (!value.is_array() ||
      !std::all_of(value.begin(), value.end(), [](const json& each) { return each.is_number(); }))
    return std::nullopt;
  return value.get<Numbers>();
}
std::optional<StringOrList> convert(std::type_identity<StringOrList>, const json& value,
                                    const Rule& rule) {
  if (value.is_string()) return StringOrList(value.get<std::string>());
  const auto words = convert(std::type_identity<Words>(), value, rule);
  return words ? std::optional(StringOrList(*words)) : std::nullopt;
}
std::optional<json> convert(std::type_identity<json>, const json& value, const Rule& rule) {
  if (value.is_string() && rule.shape != Shape::text_or_false)
    return parse(std::type_identity<json>(), value.get<std::string>(), rule);
  if (value.is_null() || (value.is_string() && rule.shape == Shape::text_or_false)) return value;
  const bool fits = rule.shape == Shape::text_or_false ? value == false : value.is_object();
  return fits ? std::optional(value) : std::nullopt;
}

// ---- value to JSON

template <class T>
json to_json(const T& value) {
  if constexpr (kIsOptional<T>) {
    return value ? to_json(*value) : json(nullptr);
  } else if constexpr (std::is_same_v<T, StepsOrRatio>) {
    return value.is_whole() ? json(static_cast<int64_t>(value.value())) : json(value.value());
  } else if constexpr (std::is_same_v<T, StringOrList>) {
    return value.is_single() ? json(value.words().front()) : json(value.words());
  } else {
    return value;
  }
}

bool says_unset(const json& value, const Rule& rule) {
  return !rule.unset_word.empty() && value == std::string(rule.unset_word);
}

bool is_none(const std::string& word) { return word == "none" || word == "None" || word == "null"; }

// Of a list that may be unset, as on the command line.
template <class Inner>
bool is_no_list(const json& value) {
  constexpr bool is_list = std::is_same_v<Inner, Words> || std::is_same_v<Inner, Numbers>;
  return is_list && value.is_string() && is_none(value.get<std::string>());
}

template <class T>
void set_from_json(T& field, const json& value, const FieldContext& context) {
  if constexpr (kIsOptional<T>) {
    if (value.is_null() || says_unset(value, context.rule) ||
        is_no_list<typename T::value_type>(value) ||
        (value == false && !context.rule.when_true.empty() && context.rule.when_false.empty())) {
      field.reset();
    } else {
      typename T::value_type inner{};
      set_from_json(inner, value, context);
      field = std::move(inner);
    }
  } else {
    auto converted = convert(std::type_identity<T>(), value, context.rule);
    if (!converted) throw_type<T>(context, dump_json(value));
    field = std::move(*converted);
  }
}

template <class T>
void set_from_words(T& field, const Words& words, const FieldContext& context) {
  if constexpr (kIsOptional<T>) {
    using Inner = typename T::value_type;
    Inner inner{};
    const bool none = !std::is_same_v<Inner, std::string> && words.size() == 1 &&
                      (is_none(words[0]) || says_unset(words[0], context.rule));
    if (!none) set_from_words(inner, words, context);
    const bool off = !none && !context.rule.when_true.empty() && context.rule.when_false.empty() &&
                     to_json(inner) == "";
    if (none || off)
      field.reset();
    else
      field = std::move(inner);
  } else if constexpr (std::is_same_v<T, Words>) {
    if (words.empty()) throw_type<T>(context, "nothing");
    field = words;
  } else if constexpr (std::is_same_v<T, Numbers>) {
    if (words.empty()) throw_type<T>(context, "nothing");
    field.clear();
    for (const auto& word : words) {
      const auto number = number_from<double>(word);
      if (!number) throw_type<T>(context, '"' + word + '"');
      field.push_back(*number);
    }
  } else if constexpr (std::is_same_v<T, StringOrList>) {
    if (words.empty()) throw_type<T>(context, "nothing");
    field = words.size() == 1 ? StringOrList(words[0]) : StringOrList(words);
  } else {
    const bool bare = words.empty() && (std::is_same_v<T, bool> || !context.rule.when_true.empty());
    if (words.empty() && !bare) throw_type<T>(context, "nothing");
    auto parsed = parse(std::type_identity<T>(), bare ? "true" : words[0], context.rule);
    if (!parsed) throw_type<T>(context, '"' + words[0] + '"');
    field = std::move(*parsed);
  }
}

// ---- checks

[[noreturn]] void throw_value(const FieldContext& context, const std::string& needed,
                              const std::string& received, const std::string& advice) {
  throw Error("G-CONF-3", ErrorKind::usage,
              fmt::format("{}: must be {}, received {}", context.where, needed, received),
              advice.empty() ? std::string(context.help) : advice);
}

std::string short_number(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15
             ? std::to_string(static_cast<int64_t>(value))
             : json_number(value);
}

void check_number(double value, const json& shown, const FieldContext& context) {
  const auto& rule = context.rule;
  const bool low = rule.least_open ? !(value > rule.least) : !(value >= rule.least);
  const bool high = rule.most_open ? !(value < rule.most) : !(value <= rule.most);
  if (!low && !high) return;
  const auto lower =
      fmt::format("{} {}", rule.least_open ? "above" : "at least", short_number(rule.least));
  const auto upper =
      fmt::format("{} {}", rule.most_open ? "below" : "at most", short_number(rule.most));
  const bool bounded_below = std::isfinite(rule.least), bounded_above = std::isfinite(rule.most);
  throw_value(context,
              bounded_below && bounded_above ? lower + " and " + upper
              : bounded_below                ? lower
              : bounded_above                ? upper
                                             : "a number",
              dump_json(shown), {});
}

void check_word(const std::string& word, const FieldContext& context) {
  const auto names = context.rule.choices();
  if (names.empty() || std::find(names.begin(), names.end(), word) != names.end()) return;
  throw_value(context, (names.size() > 1 ? "one of " : "") + join_or(names), '"' + word + '"',
              did_you_mean(word, names));
}

template <class T>
void check(const T& value, const FieldContext& context) {
  if constexpr (kIsOptional<T>) {
    if (value) check(*value, context);
  } else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double>) {
    check_number(static_cast<double>(value), value, context);
  } else if constexpr (std::is_same_v<T, StepsOrRatio>) {
    check_number(value.value(), to_json(value), context);
  } else if constexpr (std::is_same_v<T, std::string>) {
    check_word(value, context);
  } else if constexpr (std::is_same_v<T, Words>) {
    for (const auto& word : value) check_word(word, context);
  } else if constexpr (std::is_same_v<T, Numbers>) {
    for (const auto number : value) check_number(number, number, context);
  } else if constexpr (std::is_same_v<T, json>) {
    json scratch;
    set_from_json(scratch, value, context);
  }
}

template <class T>
std::string type_name(const Rule& rule) {
  if constexpr (kIsOptional<T>)
    return type_name<typename T::value_type>(rule) + " | None";
  else if constexpr (std::is_same_v<T, bool>)
    return "bool";
  else if constexpr (std::is_same_v<T, int64_t>)
    return "int";
  else if constexpr (std::is_same_v<T, double> || std::is_same_v<T, StepsOrRatio>)
    return "float";
  else if constexpr (std::is_same_v<T, std::string>)
    return "str";
  else if constexpr (std::is_same_v<T, Words>)
    return "list[str]";
  else if constexpr (std::is_same_v<T, Numbers>)
    return "list[float]";
  else if constexpr (std::is_same_v<T, StringOrList>)
    return "str | list[str]";
  else if (rule.shape == Shape::text_or_false)
    return "str | bool | None";
  else
    return "dict | str | None";
}

// Broken JSON inside a dictionary option is that option's fault.
template <class Work>
void naming_the_option(const FieldContext& context, Work work) {
  try {
    work();
  } catch (const Error& error) {
    if (error.id() != "G-JSON-1") throw;
    throw Error("G-CONF-2", ErrorKind::usage, context.where + ": " + error.message(),
                "On a command line, put the dictionary between single quotes: '{\"key\": 1}'.");
  }
}

template <class... Ts>
bool holds_any(const OptionTypes::Reference& field) {
  return (std::holds_alternative<Ts*>(field) || ...);
}

bool is_list_of_words(const OptionTypes::Reference& field) {
  return holds_any<Words, StringOrList, std::optional<Words>, std::optional<StringOrList>>(field);
}

}  // namespace

json field_to_json(const OptionTypes::Reference& field) {
  return std::visit([](const auto* value) { return to_json(*value); }, field);
}

void field_from_json(const OptionTypes::Reference& field, const json& value,
                     const FieldContext& context) {
  naming_the_option(context, [&] {
    std::visit([&](auto* target) { set_from_json(*target, value, context); }, field);
  });
}

void field_from_words(const OptionTypes::Reference& field, const Words& words,
                      const FieldContext& context) {
  naming_the_option(context, [&] {
    std::visit([&](auto* target) { set_from_words(*target, words, context); }, field);
  });
}

void check_field(const OptionTypes::Reference& field, const FieldContext& context) {
  naming_the_option(context,
                    [&] { std::visit([&](const auto* value) { check(*value, context); }, field); });
}

std::string field_type(const OptionTypes::Reference& field, const Rule& rule) {
  if (!rule.type.empty()) return std::string(rule.type);
  return std::visit(
      [&](const auto* value) { return type_name<std::remove_cvref_t<decltype(*value)>>(rule); },
      field);
}

bool is_boolean(const OptionTypes::Reference& field) {
  return holds_any<bool, std::optional<bool>>(field);
}

bool is_list(const OptionTypes::Reference& field) {
  return is_list_of_words(field) || holds_any<std::optional<Numbers>>(field);
}

bool is_text(const OptionTypes::Reference& field) {
  return is_list_of_words(field) || holds_any<std::string, std::optional<std::string>>(field);
}

std::optional<bool> boolean_word(std::string_view word) {
  std::string lower(word);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  for (const auto* yes : {"yes", "true", "t", "y", "1"})
    if (lower == yes) return true;
  for (const auto* no : {"no", "false", "f", "n", "0"})
    if (lower == no) return false;
  return std::nullopt;
}

void convert_strings(json& dictionary) {
  for (auto& value : dictionary) {
    if (value.is_object()) convert_strings(value);
    if (!value.is_string()) continue;
    const auto text = value.get<std::string>();
    std::string lower = text, digits = text;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    if (const auto point = digits.find('.'); point != std::string::npos) digits.erase(point, 1);
    const bool numeric =
        !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos;
    if (lower == "true" || lower == "false")
      value = lower == "true";
    else if (const auto whole = number_from<int64_t>(text);
             numeric && digits.size() == text.size() && whole)
      value = *whole;
    else if (const auto number = number_from<double>(text);
             numeric && digits.size() < text.size() && number)
      value = *number;
  }
}

}  // namespace gradus::config
