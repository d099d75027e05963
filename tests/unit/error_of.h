// What a call throws, as text that a test can compare. Anything but a gradus::Error goes through
// and fails the test.
#pragma once

#include <gradus/core/error.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gradus {

/// what() of the error: id, message and advice; "no error" without one.
template <class F>
std::string error_of(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// The message of the error, whose id must be `id`; "no error" without one.
template <class F>
std::string message_of(const std::string& id, F&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), id) << error.what();
    return error.message();
  }
  return "no error";
}

/// Id and message of the error; "no error" without one.
template <class F>
std::string id_and_message_of(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.id() + " " + error.message();
  }
  return "no error";
}

/// The call must throw the error `id`, and its text must have all `parts`.
template <class F>
void expect_error(F&& call, const std::string& id, const std::vector<std::string>& parts) {
  try {
    call();
    FAIL() << "expected " << id;
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), id) << error.what();
    for (const auto& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "'" << part << "' is not in: " << error.what();
  }
}

}  // namespace gradus
