#pragma once

#include <gradus/core/error.h>

#include <memory>
#include <string>
#include <vector>

namespace gradus::data {

/// `source` itself. Throws G-DATA-16 when it leads to no data set; `function` says whose argument
/// it was.
template <class T>
std::shared_ptr<T> required(std::shared_ptr<T> source, const char* function) {
  if (!source)
    throw Error("G-DATA-16", ErrorKind::usage,
                std::string(function) + " was given no data set: the pointer is null",
                "Check what made the data set, or leave it out.");
  return source;
}

template <class T>
std::vector<std::shared_ptr<T>> required(std::vector<std::shared_ptr<T>> sources,
                                         const char* function) {
  for (const auto& source : sources) required(source, function);
  return sources;
}

}  // namespace gradus::data
