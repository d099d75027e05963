#include "hooks/yaml_text.h"

#include <gradus/core/json.h>
#include <yaml-cpp/yaml.h>

namespace gradus::hooks {
namespace {

/// Whether the text, unquoted, is read back as this text.
bool is_plain(const std::string& text) {
  static constexpr std::array<std::string_view, 10> kWords = {"true", "false", "yes", "no", "on",
                                                              "off",  "null",  "y",   "n",  "nan"};
  if (text.empty() || !std::isalpha(static_cast<unsigned char>(text.front()))) return false;
  for (const unsigned char c : text)
    if (!std::isalnum(c) && c != '_' && c != '-' && c != '.' && c != '/') return false;
  std::string lower;
  for (const unsigned char c : text) lower.push_back(char(std::tolower(c)));
  return std::find(kWords.begin(), kWords.end(), lower) == kWords.end();
}

void emit_text(YAML::Emitter& out, const std::string& text) {
  if (!is_plain(text)) out << YAML::DoubleQuoted;
  out << text;
}

void emit(YAML::Emitter& out, const nlohmann::json& value) {
  if (value.is_object()) {
    if (value.empty()) out << YAML::Flow;
    out << YAML::BeginMap;
    for (const auto& [key, entry] : value.items()) {
      out << YAML::Key;
      emit_text(out, key);
      out << YAML::Value;
      emit(out, entry);
    }
    out << YAML::EndMap;
  } else if (value.is_array()) {
    if (value.empty()) out << YAML::Flow;
    out << YAML::BeginSeq;
    for (const auto& entry : value) emit(out, entry);
    out << YAML::EndSeq;
  } else if (value.is_string()) {
    emit_text(out, value.get<std::string>());
  } else if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const double number = value.get<double>();
    out << (std::isnan(number) ? ".nan" : number > 0 ? ".inf" : "-.inf");
  } else {
    out << value.dump();
  }
}

}  // namespace

std::string yaml_text(const nlohmann::json& value) {
  YAML::Emitter out;
  emit(out, value);
  return std::string(out.c_str()) + "\n";
}

}  // namespace gradus::hooks
