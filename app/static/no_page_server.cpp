// In place of page_server.cpp, where only the shared library of its HTTP server was found.
#include "serve/page_server.h"

namespace shardscope::serve {

class PageServer::Impl {};

Status PageServer::available() {
    return makeError(ErrorCode::unsupported,
                     "this is the static shardscope for other hosts, which has no page for the browser")
        .withHint("run 'shardscope serve' of an installed shardscope");
}

Result<std::unique_ptr<PageServer>> PageServer::listen(PageContent, int) {
    return available().error();
}

PageServer::PageServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PageServer::~PageServer() = default;

int PageServer::port() const {
    return 0;
}
std::string PageServer::url() const {
    return {};
}
void PageServer::serve(const StopToken&, std::chrono::seconds) {}

}  // namespace shardscope::serve
