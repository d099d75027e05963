#pragma once

#include <functional>
#include <string>
#include <thread>

namespace gradus {

/// Answers GET requests for one address on 127.0.0.1 with a text.
///
/// One thread answers one request after the other; a client that is slow is cut off after two
/// seconds, and connections that wait are few. `text` is called on that thread.
class TextServer {
 public:
  /// Listens on `port`, or on one that the system chooses for 0. Throws `Error` G-TRACK-2 when the
  /// port is taken.
  TextServer(int port, std::string path, std::string content_type,
             std::function<std::string()> text);
  /// Closes the port and waits for the thread.
  ~TextServer();
  TextServer(const TextServer&) = delete;
  TextServer& operator=(const TextServer&) = delete;

  int port() const { return port_; }

 private:
  void serve();
  void answer(int connection);

  std::string path_, content_type_;
  std::function<std::string()> text_;
  int listener_ = -1, stop_ = -1, port_ = 0;
  std::thread thread_;
};

}  // namespace gradus
