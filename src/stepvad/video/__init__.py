"""Video to tracked poses: find the people of a picture, place their joints, follow them."""
