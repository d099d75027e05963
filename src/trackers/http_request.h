#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace gradus {

/// A request to a web server.
struct HttpRequest {
  std::string url;
  /// What is posted; a request without is a GET.
  std::string body = "";
  /// Lines as "Authorization: Bearer …".
  std::vector<std::string> headers = {};
  /// "name:password"; empty for none.
  std::string user = "";
  /// How long the whole exchange may take.
  std::chrono::milliseconds timeout{8000};
  /// Whether the server's certificate has to be valid.
  bool check_certificate = true;
};

/// What a web server answers.
struct HttpAnswer {
  int64_t status = 0;
  std::string body;
};

/// Sends a request with libcurl, which is loaded at the first call. Throws `Error` G-TRACK-2 when
/// there is no libcurl, no connection or no answer in time. A status of 400 and above is an answer.
HttpAnswer send_request(const HttpRequest& request);

/// Whether there is a libcurl.
bool can_send_requests();

/// A text as a part of an address: "a b" as "a%20b".
std::string url_encoded(const std::string& text);

}  // namespace gradus
