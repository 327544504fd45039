"""What the tests of the serving distribution use."""
