#include "ui/pages/tensor_page.h"

namespace shardscope::ui {

TensorPage::TensorPage(Session& session, QWidget* parent) : QWidget(parent), session_(session) {}

}  // namespace shardscope::ui
