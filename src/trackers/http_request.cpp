#include "trackers/http_request.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <gradus/core/error.h>

#include <memory>

namespace gradus {
namespace {

constexpr size_t kLargestAnswer = size_t(16) << 20;

/// The functions of libcurl that are used. They are looked up when they are first needed: most runs
/// talk to no server, and libcurl brings a dozen libraries along.
struct CurlLibrary {
  decltype(&::curl_global_init) global_init = nullptr;
  decltype(&::curl_easy_init) easy_init = nullptr;
  decltype(&::curl_easy_setopt) easy_setopt = nullptr;
  decltype(&::curl_easy_perform) easy_perform = nullptr;
  decltype(&::curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&::curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&::curl_easy_strerror) easy_strerror = nullptr;
  decltype(&::curl_slist_append) slist_append = nullptr;
  decltype(&::curl_slist_free_all) slist_free_all = nullptr;
  bool is_complete = false;

  CurlLibrary() {
    void* library = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) library = ::dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    const auto find = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      return function != nullptr;
    };
    is_complete =
        find(global_init, "curl_global_init") && find(easy_init, "curl_easy_init") &&
        find(easy_setopt, "curl_easy_setopt") && find(easy_perform, "curl_easy_perform") &&
        find(easy_getinfo, "curl_easy_getinfo") && find(easy_cleanup, "curl_easy_cleanup") &&
        find(easy_strerror, "curl_easy_strerror") && find(slist_append, "curl_slist_append") &&
        find(slist_free_all, "curl_slist_free_all") && global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  }
};

const CurlLibrary& curl_library() {
  static const CurlLibrary library;
  return library;
}

size_t append_answer(const char* bytes, size_t, size_t count, void* into) {
  auto& body = *static_cast<std::string*>(into);
  if (body.size() + count > kLargestAnswer) return 0;  // ends the transfer
  body.append(bytes, count);
  return count;
}

}  // namespace

bool can_send_requests() { return curl_library().is_complete; }

HttpAnswer send_request(const HttpRequest& request) {
  const auto& curl = curl_library();
  if (!curl.is_complete)
    throw Error("G-TRACK-2", ErrorKind::io, "a server cannot be reached without libcurl.so.4",
                "Install it: apt-get install libcurl4.");
  const std::unique_ptr<CURL, decltype(curl.easy_cleanup)> handle(curl.easy_init(),
                                                                  curl.easy_cleanup);
  curl_slist* lines = nullptr;
  for (const auto& header : request.headers) lines = curl.slist_append(lines, header.c_str());
  const std::unique_ptr<curl_slist, decltype(curl.slist_free_all)> headers(lines,
                                                                           curl.slist_free_all);
  HttpAnswer answer;
  const auto set = [&](CURLoption option, auto value) {
    curl.easy_setopt(handle.get(), option, value);
  };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_TIMEOUT_MS, long(request.timeout.count()));
  set(CURLOPT_CONNECTTIMEOUT_MS, long(request.timeout.count() / 2));
  set(CURLOPT_WRITEFUNCTION, &append_answer);
  set(CURLOPT_WRITEDATA, &answer.body);
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_USERAGENT, "gradus");
  if (!request.user.empty()) set(CURLOPT_USERPWD, request.user.c_str());
  if (!request.check_certificate) {
    set(CURLOPT_SSL_VERIFYPEER, 0L);
    set(CURLOPT_SSL_VERIFYHOST, 0L);
  }
  if (!request.body.empty()) {
    set(CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(request.body.size()));
    set(CURLOPT_POSTFIELDS, request.body.c_str());
  }
  const auto code = curl.easy_perform(handle.get());
  if (code != CURLE_OK)
    throw Error("G-TRACK-2", ErrorKind::io,
                "no answer from " + request.url + ": " + curl.easy_strerror(code));
  long status = 0;
  curl.easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &status);
  answer.status = status;
  return answer;
}

std::string url_encoded(const std::string& text) {
  std::string encoded;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (std::isalnum(byte) != 0 || letter == '-' || letter == '_' || letter == '.')
      encoded += letter;
    else
      encoded += fmt::format("%{:02X}", unsigned(byte));
  }
  return encoded;
}

}  // namespace gradus
