// A web server of a test, on this machine and a free port: what it answers is a function of the request, and
// it can fail in the ways that servers fail.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace shardscope::test {

struct Asked {
    std::string method, path, query;             // as they came, encoded
    std::map<std::string, std::string> headers;  // names in lower case
    std::string body;

    std::string header(const std::string& name) const {
        const auto it = headers.find(name);
        return it == headers.end() ? std::string() : it->second;
    }
    std::string argument(const std::string& name) const;  // of the query, decoded
};

struct Answered {
    int status = 200;
    std::vector<std::pair<std::string, std::string>> headers{};
    std::string body{};
    // cut: half of the body, then the end of the connection; stall: half of the body, then nothing
    enum class End { whole, cut, reset, never, stall };
    End end = End::whole;
    std::function<void()> between{};  // called when half of the body was sent
};

// `bytes`, or the range of them that was asked for, which must begin inside.
Answered rangeOf(const std::string& bytes, const Asked& asked);

class HttpServer {
  public:
    using Handler = std::function<Answered(const Asked&)>;
    explicit HttpServer(Handler handler);
    ~HttpServer();
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;

    int port() const { return port_; }
    std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
    std::vector<Asked> asked() const;  // in the order in which they came
    size_t count(const std::string& method) const;
    void forget();  // what was asked so far
    void waitFor(size_t requests) const;

  private:
    void accept();
    void serve(int connection);

    const Handler handler_;
    int listening_ = -1, port_ = 0;
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::vector<Asked> asked_;
    std::vector<std::thread> threads_;
    std::vector<int> connections_;
    bool ending_ = false;
    std::thread thread_;
};

// A bucket, path style, as Amazon's: listings, ranges, conditions, uploads in parts. Requests without a
// signature of this key are refused. Those with a token of Google's must come with Google's own headers.
class FakeBucket {
  public:
    explicit FakeBucket(std::string name);

    struct Object {
        std::string bytes, tag, mark;
    };
    // Held while they are changed by a test; keys in byte order.
    std::mutex mutex;
    std::map<std::string, Object> objects;
    std::map<std::string, std::map<int, std::string>> uploads;
    size_t mostKeys = 1000;  // of a page
    bool checksChecksums = true;
    bool knowsConditions = true;  // else it ignores them
    // Looks at each request first; an answer with status 0 leaves it to the bucket.
    std::function<Answered(const Asked&)> before;

    void put(const std::string& key, std::string bytes);
    void putTree(const std::string& directory, const std::string& prefix);
    HttpServer& server() { return server_; }
    std::string url() const { return "s3://" + name_; }
    // Sets the variables by which the program finds this bucket.
    void use(const std::string& key = "AKTEST", const std::string& secret = "SKTESTSECRET") const;
    // The same for gs://; with this token, or with keys where it is empty.
    void useAsGoogle(const std::string& token, const std::string& secret = "SKTESTSECRET");

  private:
    Answered answer(const Asked& asked);
    Answered asGoogle(const Asked& asked);
    Answered granted(const Asked& asked);
    Answered list(const Asked& asked);
    Answered get(const Asked& asked, const std::string& key);
    Answered partsOf(const Asked& asked);
    Answered write(const Asked& asked, const std::string& key);

    const std::string name_;
    std::string token_;
    int lastUpload_ = 0;
    HttpServer server_;  // last: it asks for the others
};

std::string percentDecoded(std::string_view text);

}  // namespace shardscope::test
