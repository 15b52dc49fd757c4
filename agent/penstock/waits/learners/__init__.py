"""How long will a geometry wait? Predictors behind one small interface."""
