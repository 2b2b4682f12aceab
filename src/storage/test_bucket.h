// Shared by this module's tests: a server in this process that keeps objects in memory and speaks as much of
// S3's protocol as the store uses. It checks no signatures.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/text.h"
#include "storage/s3_access.h"

namespace sluice::storage {

class MemoryBucket {
 public:
  struct Request {
    std::string method, path, body;  // the path has the query
    std::map<std::string, std::string> headers;
    // A parameter of the query, not decoded; nullopt: it is absent.
    std::optional<std::string> parameter(const std::string& name) const {
      for (const std::string& each :
           base::split(path.substr(std::min(path.size(), path.find('?') + 1)), '&')) {
        if (each.starts_with(name + "=")) return each.substr(name.size() + 1);
      }
      return std::nullopt;
    }
    std::string key() const {
      const std::string name = path.substr(0, path.find('?'));
      return name.substr(std::min(name.size(), std::string_view("/bucket/").size()));
    }
  };
  struct Answer {
    int status = 200;
    std::string body = {};
    std::string headers = {};  // lines that end
  };

  MemoryBucket() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(socket_, 16), 0);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { accept_all(); });
  }
  ~MemoryBucket() {
    ending_ = true;
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }

  S3Access access() const {
    return {.endpoint = base::text("http://127.0.0.1:", port_), .attempts = 3, .credentials = [] {
              return S3Credentials{.key_id = "id", .secret = "secret"};
            }};
  }
  // Answers in place of the server if it returns something; called for each request.
  std::function<std::optional<Answer>(const Request&)> instead;

  std::vector<Request> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  std::map<std::string, std::string> objects() const {
    const std::lock_guard lock(mutex_);
    return objects_;
  }
  void put(const std::string& key, const std::string& bytes) {
    const std::lock_guard lock(mutex_);
    objects_[key] = bytes;
  }
  size_t uploads() const {  // begun and neither completed nor aborted
    const std::lock_guard lock(mutex_);
    return uploads_.size();
  }

 private:
  void accept_all() {
    std::vector<std::thread> connections;
    while (!ending_) {
      const int connection = ::accept(socket_, nullptr, nullptr);
      if (connection < 0) break;
      connections.emplace_back([this, connection] { serve(connection); });
    }
    for (std::thread& each : connections) each.join();
  }
  // Each answer ends its connection, so that no connection outlives its client.
  void serve(int connection) {
    std::string bytes;
    size_t head = 0;
    char buffer[65536];
    Request request;
    while (true) {
      const ssize_t got = ::recv(connection, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      bytes.append(buffer, static_cast<size_t>(got));
      if (head == 0 && bytes.find("\r\n\r\n") != std::string::npos) {
        head = bytes.find("\r\n\r\n") + 4;
        request = head_of(bytes.substr(0, head));
      }
      const auto length = request.headers.find("content-length");
      const size_t body = length == request.headers.end() ? 0 : std::stoull(length->second);
      if (head == 0 || bytes.size() < head + body) continue;
      request.body = bytes.substr(head, body);
      const Answer answer = answer_of(request);
      // The answer to HEAD has the length of the object, and no body.
      const bool sized = answer.headers.find("Content-Length") != std::string::npos;
      const std::string text =
          base::text("HTTP/1.1 ", answer.status, " X\r\nConnection: close\r\n",
                     sized ? "" : base::text("Content-Length: ", answer.body.size(), "\r\n"), answer.headers,
                     "\r\n", answer.body);
      ::send(connection, text.data(), text.size(), MSG_NOSIGNAL);
      break;
    }
    ::close(connection);
  }
  static Request head_of(const std::string& bytes) {
    Request request;
    for (const std::string& line : base::split(bytes, '\n')) {
      const size_t colon = line.find(": ");
      if (request.method.empty()) {
        const std::vector<std::string> words = base::split(line, ' ');
        request.method = words.at(0);
        request.path = words.at(1);
      } else if (colon != std::string::npos) {
        std::string name = line.substr(0, colon);
        std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
        request.headers[name] = base::trim(line.substr(colon + 2));
      }
    }
    return request;
  }

  Answer answer_of(const Request& request) {
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    if (instead) {
      if (std::optional<Answer> own = instead(request)) return *own;
    }
    const std::lock_guard lock(mutex_);
    if (request.parameter("list-type")) return list(request);
    if (request.method == "PUT" || request.method == "POST") return take(request);
    const auto found = objects_.find(request.key());
    if (request.method == "DELETE") {
      if (const auto upload = request.parameter("uploadId")) {
        uploads_.erase(*upload);
      } else if (found != objects_.end()) {
        objects_.erase(found);
      }
      return {.status = 204};
    }
    if (found == objects_.end())
      return {.status = 404, .body = request.method == "HEAD" ? "" : "<Code>NoSuchKey</Code>"};
    return give(request, found->second);
  }
  static std::string tag_of(const std::string& bytes) {
    return base::text("\"", std::hash<std::string>()(bytes), "\"");
  }
  static Answer give(const Request& request, const std::string& bytes) {
    const auto version = request.headers.find("if-match");
    if (version != request.headers.end() && version->second != tag_of(bytes)) return {.status = 412};
    if (request.method == "HEAD")
      return {.headers = base::text("Content-Length: ", bytes.size(), "\r\nETag: ", tag_of(bytes),
                                    "\r\nLast-Modified: Sun, 22 Nov 2026 18:36:10 GMT\r\n")};
    const auto range = request.headers.find("range");
    if (range == request.headers.end()) return {.body = bytes};
    const size_t dash = range->second.find('-');
    const size_t begin = std::stoull(range->second.substr(6)),
                 last = std::stoull(range->second.substr(dash + 1));
    return {.status = 206,
            .body = bytes.substr(begin, last + 1 - begin),
            .headers = base::text("Content-Range: bytes ", begin, "-", last, "/", bytes.size(), "\r\n")};
  }
  // A PUT of an object or of a part; the beginning or the end of an upload.
  Answer take(const Request& request) {
    if (request.parameter("uploads")) {
      const std::string id = base::text("upload", ++last_upload_);
      uploads_[id] = {};
      return {.body = "<UploadId>" + id + "</UploadId>"};
    }
    const std::optional<std::string> id = request.parameter("uploadId");
    if (!id) {
      objects_[request.key()] = request.body;
      return {.headers = "ETag: " + tag_of(request.body) + "\r\n"};
    }
    if (const auto number = request.parameter("partNumber")) {
      uploads_.at(*id)[std::stoi(*number)] = request.body;
      return {.headers = "ETag: " + tag_of(request.body) + "\r\n"};
    }
    std::string whole;
    for (const auto& [number, part] : uploads_.at(*id)) whole += part;
    objects_[request.key()] = whole;
    uploads_.erase(*id);
    return {};
  }
  // Pages of two names. Names behind the delimiter are grouped.
  Answer list(const Request& request) {
    std::string prefix = request.parameter("prefix").value_or("");
    for (size_t at = prefix.find("%2F"); at != std::string::npos; at = prefix.find("%2F"))
      prefix.replace(at, 3, "/");
    const bool groups = request.parameter("delimiter").has_value();
    std::map<std::string, std::string> lines;
    for (const auto& [key, bytes] : objects_) {
      if (!key.starts_with(prefix)) continue;
      const size_t slash = key.find('/', prefix.size());
      if (groups && slash != std::string::npos) {
        const std::string common = key.substr(0, slash + 1);
        lines[common] = "<CommonPrefixes><Prefix>" + common + "</Prefix></CommonPrefixes>";
      } else {
        lines[key] = base::text("<Contents><Key>", key, "</Key><Size>", bytes.size(), "</Size></Contents>");
      }
    }
    const std::string after = request.parameter("continuation-token").value_or("");
    std::string body;
    int listed = 0;
    for (const auto& [name, line] : lines) {
      const std::string token = base::text(std::hash<std::string>()(name));
      if (!after.empty() && !passed_.contains(after)) continue;
      if (!after.empty() && name <= passed_.at(after)) continue;
      if (listed == 2) {
        body += "<IsTruncated>true</IsTruncated><NextContinuationToken>" + last_token_ +
                "</NextContinuationToken>";
        break;
      }
      body += line;
      ++listed;
      last_token_ = token;
      passed_[token] = name;
    }
    return {.body = body};
  }

  int socket_ = -1;
  int port_ = 0;
  std::atomic<bool> ending_ = false;
  mutable std::mutex mutex_;
  std::vector<Request> requests_;
  std::map<std::string, std::string> objects_, passed_;
  std::map<std::string, std::map<int, std::string>> uploads_;  // parts by number
  int last_upload_ = 0;
  std::string last_token_;
  std::thread thread_;
};

}  // namespace sluice::storage
