#include "ui/pages/compare_page.h"

namespace shardscope::ui {

ComparePage::ComparePage(Session& session, QWidget* parent) : QWidget(parent), session_(session) {}

}  // namespace shardscope::ui
