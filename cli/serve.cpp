// Runs as a page in the browser.
#include <fmt/format.h>
#include <gradus/config/option_set.h>
#include <gradus/core/error.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cctype>
#include <random>

#include "cli.h"
#include "page_files.h"
#include "reference.h"
#include "serve_api.h"

namespace gradus::cli {
namespace {

namespace fs = std::filesystem;

struct ServeFlags {
  std::string host = "127.0.0.1";
  int64_t port = 6070;
  std::optional<std::string> token = std::nullopt;
};
constexpr OptionRow<ServeFlags> kServeRows[] = {
    {&ServeFlags::host, "host", Group::output, any_value(),
     "The address to listen on. Beyond 127.0.0.1 the page asks for a token."},
    {&ServeFlags::port, "port", Group::output, within(0, 65535),
     "The port to listen on; 0: one that is free."},
    {&ServeFlags::token, "token", Group::output, any_value(),
     "What a visitor must know; unset: none on 127.0.0.1, elsewhere one is made up."},
};

constexpr const char* kServeUsage = "usage: gradus serve DIR [--flags]";
volatile sig_atomic_t g_serve_stop = 0;

/// Nothing is loaded from elsewhere, and no other page may look in.
const std::vector<std::pair<std::string, std::string>> kSafeHeaders = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
     "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
     "frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"X-Frame-Options", "DENY"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cache-Control", "no-store"},
};

std::string header(const HttpRequest& request, const char* name) {
  const auto found = request.headers.find(name);
  return found != request.headers.end() ? found->second : "";
}

/// Compares without telling by its time how much is right.
bool is_same_secret(std::string_view given, std::string_view expected) {
  unsigned char difference = given.size() == expected.size() ? 0 : 1;
  for (size_t i = 0; i < expected.size(); ++i)
    difference |= static_cast<unsigned char>((i < given.size() ? given[i] : 0) ^ expected[i]);
  return difference == 0;
}

/// An address of IPv6 stands in brackets there.
std::string host_in_address(const std::string& host) {
  return host.find(':') != std::string::npos ? "[" + host + "]" : host;
}

/// A token stands in an address and in a cookie, so that its characters must fit into both.
bool fits_an_address(const std::string& token) {
  return std::all_of(token.begin(), token.end(), [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '-' || letter == '_' || letter == '.' ||
           letter == '~';
  });
}

bool is_loopback(const std::string& host) { return host.starts_with("127.") || host == "::1"; }

/// Who may look at the page.
class Gate {
 public:
  Gate(std::string token, bool is_local, std::string host)
      : token_(std::move(token)), is_local_(is_local), host_(std::move(host)) {}
  void set_port(int port) { port_ = port; }

  /// Another answer than the page's own, if the request may not have that.
  std::optional<HttpAnswer> refusal(const HttpRequest& request) const {
    // A page of another site may send a browser here under a name of its own: DNS rebinding.
    const auto host = header(request, "host"), origin = header(request, "origin");
    if (is_local_ && !is_own_name(host)) return refused(421, "This page answers as 127.0.0.1.");
    if (!origin.empty() && origin != "http://" + host && origin != "https://" + host)
      return refused(403, "Requests of other sites are refused.");
    const auto site = header(request, "sec-fetch-site");
    const bool is_visit = request.path == "/" && header(request, "sec-fetch-mode") == "navigate";
    if (!site.empty() && site != "same-origin" && site != "none" && !is_visit)
      return refused(403, "Requests of other sites are refused.");
    if (token_.empty() || is_same_secret(cookie(request), token_)) return std::nullopt;
    if (header(request, "authorization").starts_with("Bearer ") &&
        is_same_secret(header(request, "authorization").substr(7), token_))
      return std::nullopt;
    const auto given = request.query.find("token");
    if (given == request.query.end() || !is_same_secret(given->second, token_))
      return refused(401, "Open the address with the token that `gradus serve` printed.");
    if (request.path != "/") return std::nullopt;
    // The browser keeps it from here on, and the address no longer shows it.
    return HttpAnswer{.status = 303,
                      .headers = {{"Location", "/"},
                                  {"Set-Cookie", cookie_name() + "=" + token_ +
                                                     "; HttpOnly; SameSite=Strict; Path=/"}}};
  }

 private:
  static HttpAnswer refused(int status, const std::string& why) {
    return {.status = status, .type = "text/plain; charset=utf-8", .body = why + "\n"};
  }

  bool is_own_name(const std::string& host) const {
    for (const auto& name : {std::string("127.0.0.1"), std::string("localhost"),
                             std::string("[::1]"), host_in_address(host_)})
      if (host == fmt::format("{}:{}", name, port_) || (port_ == 80 && host == name)) return true;
    return false;
  }

  std::string cookie_name() const { return fmt::format("gradus_token_{}", port_); }

  std::string cookie(const HttpRequest& request) const {
    const auto all = header(request, "cookie"), name = cookie_name() + "=";
    for (size_t at = 0; at < all.size();) {
      auto end = all.find(';', at);
      if (end == std::string::npos) end = all.size();
      const auto begin = all.find_first_not_of(' ', at);
      if (begin < end && all.compare(begin, name.size(), name) == 0)
        return all.substr(begin + name.size(), end - begin - name.size());
      at = end + 1;
    }
    return "";
  }

  std::string token_;
  bool is_local_;
  std::string host_;
  int port_ = 0;
};

std::string random_token() {
  constexpr std::string_view kLetters = "abcdefghijkmnpqrstuvwxyz23456789";
  std::random_device source;
  std::string token;
  for (int i = 0; i < 32; ++i) token += kLetters[source() % kLetters.size()];
  return token;
}

std::optional<HttpAnswer> page_file(const std::string& path) {
  const auto name = path == "/" ? std::string_view("index.html") : std::string_view(path).substr(1);
  for (const auto& file : page_files())
    if (file.name == name)
      return HttpAnswer{.type = std::string(file.type), .lasting = file.content};
  return std::nullopt;
}

void wait_for_the_end() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action{};
    action.sa_handler = [](int) { g_serve_stop = 1; };
    struct sigaction before{};  // of nohup, which lets it go on
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
  while (g_serve_stop == 0) ::poll(nullptr, 0, 500);
}

}  // namespace

int serve(Words words) {
  std::vector<std::string> rest(words.begin(), words.end());
  std::string root;
  if (!rest.empty() && !rest.front().starts_with("-")) {
    root = rest.front();
    rest.erase(rest.begin());
  }
  ServeFlags flags;
  OptionSet set;
  set.add(flags, std::span<const OptionRow<ServeFlags>>(kServeRows));
  if (set.parse(rest).help) {
    print_line(fmt::format(
        "{}\n\nA page in the browser with all runs in DIR: live curves, settings, samples, system "
        "metrics and checkpoints. It only reads, and answers on 127.0.0.1 alone unless told "
        "otherwise.\n\n{}",
        kServeUsage, set.help()));
    return 0;
  }
  if (root.empty())
    throw Error("G-CLI-4", ErrorKind::usage, "gradus serve takes a folder, received none",
                kServeUsage);
  set.check();
  if (!fs::is_directory(root))
    throw Error("G-CLI-5", ErrorKind::usage, root + ": there is no such folder",
                "Name a folder that holds runs.");
  if (page_files().empty())
    throw Error("G-SERVE-1", ErrorKind::usage,
                "this gradus was built without its page: the plotting library uPlot was not there",
                "Run tools/setup where npm is installed and build again. `gradus watch` needs "
                "neither.");
  const bool is_local = is_loopback(flags.host);
  const auto token = flags.token.value_or(is_local ? "" : random_token());
  if (flags.token && token.size() < (is_local ? 1 : 8))
    throw Error("G-SERVE-4", ErrorKind::usage,
                is_local
                    ? std::string("--token is empty, which would ask for none")
                    : fmt::format("--host {} needs a --token of at least 8 characters", flags.host),
                is_local ? "Leave --token out." : "Leave --token out to have one made up.");
  if (!fits_an_address(token))
    throw Error("G-SERVE-4", ErrorKind::usage,
                "--token holds characters that an address cannot: expected letters, digits, and "
                "\"-_.~\"",
                "Leave --token out to have one made up.");
  const runs::RunCollection runs(root);
  ServeApi api(runs);
  Gate gate(token, is_local, flags.host);
  std::atomic<bool> is_open{false};
  HttpServer server(flags.host, int(flags.port), [&](const HttpRequest& request) {
    if (!is_open) return HttpAnswer{.status = 503};
    auto answer = [&]() -> HttpAnswer {
      if (auto refused = gate.refusal(request)) return *refused;
      if (request.path.starts_with("/api/")) return api.answer(request);
      if (auto file = page_file(request.path)) return *file;
      return {.status = 404};
    }();
    answer.headers.insert(answer.headers.end(), kSafeHeaders.begin(), kSafeHeaders.end());
    return answer;
  });
  gate.set_port(server.port());
  is_open = true;
  print_line(fmt::format("gradus serve: http://{}:{}/{}  (Ctrl-C ends it)",
                         host_in_address(flags.host), server.port(),
                         token.empty() ? "" : "?token=" + token));
  wait_for_the_end();
  return 0;
}

std::vector<Flag> serve_flags() { return flags_of(kServeRows); }

}  // namespace gradus::cli
