#include "config/python_text.h"

#include <gradus/core/json.h>

#include <cmath>

namespace gradus::config {
namespace {

std::string quoted(const std::string& text) {
  const char quote =
      text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\\' || c == quote)
      out.append("\\").push_back(c);
    else
      out += c;
  }
  return out + quote;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return json_number(value);
}

}  // namespace

std::string python_repr(const nlohmann::json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_string()) return quoted(value.get<std::string>());
  if (value.is_number_float()) return number_text(value.get<double>());
  if (!value.is_structured()) return value.dump();
  std::string out;
  for (const auto& item : value.items()) {
    if (!out.empty()) out += ", ";
    if (value.is_object()) out += quoted(item.key()) + ": ";
    out += python_repr(item.value());
  }
  return value.is_object() ? "{" + out + "}" : "[" + out + "]";
}

std::string python_str(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : python_repr(value);
}

}  // namespace gradus::config
