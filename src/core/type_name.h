#pragma once

#include <string>
#include <typeinfo>

namespace gradus {

/// The name of a type without the namespaces it stands in: "Recorder" of `my::Recorder`,
/// "Every<my::Step>" of `my::Every<my::Step>`.
std::string unqualified_name(const std::type_info& type);

}  // namespace gradus
