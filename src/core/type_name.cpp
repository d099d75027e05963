#include "core/type_name.h"

#include <c10/util/Type.h>

namespace gradus {

std::string unqualified_name(const std::type_info& type) {
  const auto full = c10::demangle(type.name());
  const auto colon = full.substr(0, full.find('<')).rfind("::");
  return colon == std::string::npos ? full : full.substr(colon + 2);
}

}  // namespace gradus
