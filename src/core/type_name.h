#pragma once

#include <string>
#include <typeinfo>

namespace gradus {

/// The name of a type without the namespaces it stands in: "Recorder" of `my::Recorder`,
/// "Every<my::Step>" of `my::Every<my::Step>`.
std::string unqualified_name(const std::type_info& type);
/// The same of an object's own type, which may be derived from `T`.
template <class T>
std::string unqualified_name_of(const T& object) {
  return unqualified_name(typeid(object));
}

/// Whether two objects have the same type of their own.
template <class A, class B>
bool have_same_type(const A& a, const B& b) {
  return typeid(a) == typeid(b);
}

}  // namespace gradus
