// libtorch's ProcessGroupGloo.hpp includes five headers of Gloo that the package does not bring along. These
// declare as much as it needs; objects of them are only passed along, never made here.
#pragma once
