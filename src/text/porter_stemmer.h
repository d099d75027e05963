#pragma once

#include <string>
#include <string_view>

namespace gradus::text {

/// The stem of an English word in lower case, by Porter's algorithm with the changes of NLTK's
/// `PorterStemmer` (its default mode): "running" and "runs" become "run". ROUGE compares stems.
/// A pure function; safe from any thread.
std::string porter_stem(std::string_view word);

}  // namespace gradus::text
