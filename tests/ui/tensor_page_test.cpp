#include "support/gui_test.h"

using namespace shardscope;
using namespace shardscope::ui;

class TensorPageTest : public QObject {
    Q_OBJECT
};

SHARDSCOPE_GUI_TEST_MAIN(TensorPageTest)
#include "tensor_page_test.moc"
