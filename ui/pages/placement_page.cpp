#include "ui/pages/placement_page.h"

namespace shardscope::ui {

PlacementPage::PlacementPage(Session& session, QWidget* parent) : QWidget(parent), session_(session) {}

}  // namespace shardscope::ui
