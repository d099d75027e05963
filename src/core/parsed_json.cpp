#include "core/parsed_json.h"

namespace gradus {

nlohmann::json strict_json(std::string_view text) { return nlohmann::json::parse(text); }

nlohmann::json json_or_discarded(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

nlohmann::ordered_json ordered_json_or_discarded(std::string_view text) {
  return nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace gradus
