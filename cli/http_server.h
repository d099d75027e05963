#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::cli {

/// A GET request. Values are as they were sent, unescaped.
struct HttpRequest {
  std::string path;                            ///< "/api/runs"
  std::map<std::string, std::string> query;    ///< "?from=0": {"from": "0"}
  std::map<std::string, std::string> headers;  ///< names in small letters; the first of each
};

/// What is answered.
struct HttpAnswer {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  /// Bytes that stay where they are as long as the program runs, in place of `body`.
  std::string_view lasting = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

/// Answers GET requests, through libmicrohttpd, on a few threads of its own.
///
/// Everything is bounded: the number of connections, the memory of each, the bytes of answers that
/// wait for slow readers, and the time that a silent connection is kept. What is beyond is refused
/// or waits. Other methods than GET and HEAD are refused, and requests with a body. libmicrohttpd
/// is loaded when it is first needed.
class HttpServer {
 public:
  /// Called on any thread, several at once. What it throws becomes status 500.
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;

  /// Listens on `address` (an IPv4 or IPv6 number) and `port`, or one that the system chooses for
  /// 0. Throws `Error` G-SERVE-2 where there is no libmicrohttpd, and G-SERVE-3 when it cannot
  /// listen.
  HttpServer(const std::string& address, int port, Handler handler);
  /// Closes all connections.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }

 private:
  struct Daemon;

  std::unique_ptr<Daemon> daemon_;
  int port_ = 0;
};

}  // namespace gradus::cli
