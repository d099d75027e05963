#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/models/config_reader.h>

#include <fmt/format.h>

#include <cmath>

namespace gradus {

namespace {

std::string shown(const nlohmann::json& value) {
  const auto text = dump_json(value);
  return text.size() > 60 ? fmt::format("{}...", std::string_view(text).substr(0, 57)) : text;
}

std::string bounds_text(const char* kind, double low, double high, double lowest, double highest) {
  if (low <= lowest && high >= highest) return kind;
  if (high >= highest) return fmt::format("{} of at least {}", kind, low);
  if (low <= lowest) return fmt::format("{} of at most {}", kind, high);
  return fmt::format("{} from {} to {}", kind, low, high);
}

}  // namespace

ConfigReader::ConfigReader(const nlohmann::json& values, std::string where,
                           std::map<std::string, std::string> aliases)
    : values_(values), where_(std::move(where)), aliases_(std::move(aliases)) {
  if (!values_.is_object())
    throw Error("G-MODEL-5", ErrorKind::model,
                fmt::format("{}: expected an object with the model's settings, received {}", where_,
                            shown(values_)),
                "Give the content of a config.json.");
}

const nlohmann::json* ConfigReader::find(const std::string& name) const {
  auto found = values_.find(name);
  if (found == values_.end() && aliases_.count(name) != 0) found = values_.find(aliases_.at(name));
  return found == values_.end() || found->is_null() ? nullptr : &*found;
}

void ConfigReader::fail(const std::string& name, const std::string& expected,
                        const std::string& received) const {
  throw Error("G-MODEL-5", ErrorKind::model,
              fmt::format("{}: {} must be {}, received {}", where_, name, expected, received),
              "Correct the value in the model's config.json.");
}

std::optional<int64_t> ConfigReader::optional_integer(const std::string& name, int64_t at_least,
                                                      int64_t at_most) const {
  const auto* value = find(name);
  if (value == nullptr) return std::nullopt;
  const auto expected = bounds_text("an integer", static_cast<double>(at_least),
                                    static_cast<double>(at_most), -9e18, 9e18);
  std::optional<int64_t> number;
  if (value->is_number_unsigned() && value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX))
    number = value->get<int64_t>();
  else if (value->is_number_integer() && !value->is_number_unsigned())
    number = value->get<int64_t>();
  else if (value->is_number_float() && std::abs(value->get<double>()) < 9e15 &&
           std::trunc(value->get<double>()) == value->get<double>())
    number = static_cast<int64_t>(value->get<double>());
  if (!number || *number < at_least || *number > at_most) fail(name, expected, shown(*value));
  return number;
}

int64_t ConfigReader::integer(const std::string& name, std::optional<int64_t> fallback,
                              int64_t at_least, int64_t at_most) const {
  const auto value = optional_integer(name, at_least, at_most);
  if (!value && !fallback) fail(name, "given", "nothing");
  return value ? *value : *fallback;
}

std::optional<double> ConfigReader::optional_number(const std::string& name, double at_least,
                                                    double at_most) const {
  const auto* value = find(name);
  if (value == nullptr) return std::nullopt;
  const auto expected = bounds_text("a finite number", at_least, at_most, -1e300, 1e300);
  if (!value->is_number()) fail(name, expected, shown(*value));
  const auto number = value->get<double>();
  if (!std::isfinite(number) || number < at_least || number > at_most)
    fail(name, expected, shown(*value));
  return number;
}

double ConfigReader::number(const std::string& name, std::optional<double> fallback,
                            double at_least, double at_most) const {
  const auto value = optional_number(name, at_least, at_most);
  if (!value && !fallback) fail(name, "given", "nothing");
  return value ? *value : *fallback;
}

bool ConfigReader::flag(const std::string& name, bool fallback) const {
  const auto* value = find(name);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) fail(name, "true or false", shown(*value));
  return value->get<bool>();
}

std::optional<std::string> ConfigReader::optional_text(const std::string& name) const {
  const auto* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(name, "a text", shown(*value));
  return value->get<std::string>();
}

std::string ConfigReader::text(const std::string& name, std::optional<std::string> fallback) const {
  auto value = optional_text(name);
  if (!value && !fallback) fail(name, "given", "nothing");
  return value ? *value : *fallback;
}

int64_t num_labels(const nlohmann::json& config) {
  const ConfigReader reader(config);
  if (const auto count = reader.optional_integer("num_labels")) return *count;
  const auto* labels = reader.find("id2label");
  if (labels == nullptr) return 2;
  if (!labels->is_object() || labels->empty())
    reader.fail("id2label", "an object from class numbers to names", shown(*labels));
  return static_cast<int64_t>(labels->size());
}

}  // namespace gradus
