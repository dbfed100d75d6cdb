#include "ui/pages/files_page.h"

namespace shardscope::ui {

FilesPage::FilesPage(Session& session, QWidget* parent) : QWidget(parent), session_(session) {}

}  // namespace shardscope::ui
