#include "ui/pages/overview_page.h"

namespace shardscope::ui {

OverviewPage::OverviewPage(Session& session, QWidget* parent) : QWidget(parent), session_(session) {}

}  // namespace shardscope::ui
